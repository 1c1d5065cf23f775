"""Owns: what is counted of each who takes part, and the table of it. Must not know: what they do."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Account:
    """Everything is measured where it happens: times by the clock that all processes share."""

    who: str
    frames: int = 0
    dropped: int = 0
    copies: int = 0
    wrong: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)  # microseconds from published to in hand

    def row(self) -> tuple[str, ...]:
        rate = f"{self.frames / self.seconds:.1f}" if self.seconds else "-"
        median = f"{statistics.median(self.latencies):,.0f}" if self.latencies else "-"
        worst = f"{max(self.latencies):,.0f}" if self.latencies else "-"
        per_frame = f"{self.copies / self.frames:.0f}" if self.frames else "-"
        return self.who, str(self.frames), rate, median, worst, str(self.dropped), per_frame


TITLES = ("who", "frames", "per second", "latency us", "worst us", "not seen", "copies a frame")


def table(accounts: Sequence[Account]) -> str:
    rows = [TITLES, *(account.row() for account in accounts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(TITLES))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)
