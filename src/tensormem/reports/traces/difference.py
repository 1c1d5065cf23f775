"""Owns: what is different between two traces: peaks, what was left over, failures, numbers of events.

Must not know: how it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tensormem.reports.traces.summary import TraceSummary
from tensormem.trace import Peak

_VERSION = 1


class Change(NamedTuple):
    """One figure in both traces."""

    what: str
    name: str
    before: int
    after: int

    @property
    def difference(self) -> int:
        """How much more the second has."""
        return self.after - self.before

    @property
    def percent(self) -> float | None:
        """The same in percent of the first; None where that was 0."""
        return 100.0 * self.difference / self.before if self.before else None


@dataclass(frozen=True)
class TraceDifference:
    """Two traces, figure by figure."""

    before: str
    after: str
    changes: tuple[Change, ...]

    @property
    def grew(self) -> bool:
        """Whether the second needs more memory at its peak, leaves more behind, or fails more often."""
        return any(change.difference > 0 for change in self.changes if not change.name and change.what != "events")

    def as_json(self) -> dict[str, Any]:
        """Raw values with a version, for programs."""
        return {
            "version": _VERSION,
            "before": self.before,
            "after": self.after,
            "grew": self.grew,
            "changes": [{**change._asdict(), "difference": change.difference} for change in self.changes],
        }


def compare(before: TraceSummary, after: TraceSummary) -> TraceDifference:
    """What is different, the totals first, then by space and by tag; what is the same is left out below the totals."""
    totals = (
        Change("peak bytes", "", before.peak_bytes, after.peak_bytes),
        Change("bytes never given back", "", before.outstanding_bytes, after.outstanding_bytes),
        Change("failures", "", before.failures, after.failures),
        Change("events", "", before.events, after.events),
    )
    parts = [*_changes("peak bytes of space", before.spaces, after.spaces)]
    parts += _changes("peak bytes of tag", before.tags, after.tags)
    parts.sort(key=lambda change: -abs(change.difference))
    return TraceDifference(before.source, after.source, (*totals, *parts))


def _changes(what: str, before: dict[str, Peak], after: dict[str, Peak]) -> list[Change]:
    names = sorted((before.keys() | after.keys()) - {""})
    both = (Change(what, name, _bytes(before.get(name)), _bytes(after.get(name))) for name in names)
    return [change for change in both if change.difference]


def _bytes(peak: Peak | None) -> int:
    return 0 if peak is None else peak.nbytes
