"""Owns: what a soak came to, as text for the terminal and as a page of the documentation. Must not know: how it ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from attacks.crew import Tally
from attacks.endurance import Figures
from attacks.outcome import BAD, Finding, Outcome
from attacks.suite import load_suite

__all__ = ["SoakReport", "text_of", "write_page"]


@dataclass(frozen=True)
class SoakReport:
    """Everything that a soak found."""

    tallies: dict[str, Tally]
    seconds: float
    seed: int
    figures: list[Figures] = field(default_factory=list)
    grown: dict[str, tuple[int, int]] = field(default_factory=dict)
    endurance_code: int | None = None
    fuzzing: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        found = any(tally.findings for tally in self.tallies.values())
        failed = any(line.split("\t")[-1] != "clean" for line in self.fuzzing)
        return not found and not self.grown and self.endurance_code is None and not failed

    @property
    def cases(self) -> int:
        """Of all suites."""
        return sum(tally.cases for tally in self.tallies.values())


def repeat_command(finding: Finding) -> str:
    """How to have it again: its batch up to it, because what came before may matter."""
    count = finding.seed - finding.first_seed + 1
    return f"scripts/soak.sh --only {finding.suite} --seed {finding.first_seed} --cases {count} --no-endurance"


def _rows(report: SoakReport) -> list[list[str]]:
    columns = [*Outcome]
    rows = [["attack", "cases", *columns]]
    for name, tally in report.tallies.items():
        rows.append([name, f"{tally.cases:,}", *(f"{tally.counts.get(each, 0):,}" for each in columns)])
    totals = [sum(tally.counts.get(each, 0) for tally in report.tallies.values()) for each in columns]
    rows.append(["all", f"{report.cases:,}", *(f"{total:,}" for total in totals)])
    return rows


def _groups(report: SoakReport) -> list[list[Finding]]:
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for tally in report.tallies.values():
        for finding in tally.findings:
            groups.setdefault(finding.kind, []).append(finding)
    return sorted(groups.values(), key=len, reverse=True)


def _endurance(report: SoakReport) -> list[str]:
    if not report.figures:
        return []
    first, last = report.figures[len(report.figures) // 3], report.figures[-1]
    text = (
        f"A process that worked for {last.seconds:.0f} s beside them: "
        f"{first.resident_bytes >> 20} -> {last.resident_bytes >> 20} MiB resident, "
        f"{first.descriptors} -> {last.descriptors} descriptors, {first.threads} -> {last.threads} threads"
    )
    lines = [f"{text} (from the first third on)."]
    if report.grown:
        lines.append(f"It is not bounded: {report.grown}")
    if report.endurance_code is not None:
        lines.append(f"It ended by itself with {report.endurance_code}.")
    return lines


def text_of(report: SoakReport) -> str:
    """The summary, and for each kind of finding what it was and how to repeat it."""
    rows = _rows(report)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [""]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines += [
        f"could not run: {name}: {tally.could_not_run}" for name, tally in report.tallies.items() if tally.could_not_run
    ]
    lines += ["", *(line.replace("\t", "  ") for line in report.fuzzing), *_endurance(report)]
    for group in _groups(report):
        finding = group[0]
        lines += ["", f"{finding.outcome} ({len(group)}x) in {finding.suite}, seed {finding.seed}", finding.what[:2500]]
        lines += [f"again: {repeat_command(finding)}"]
    verdict = "clean" if report.is_clean else "NOT clean"
    lines += ["", f"{report.cases:,} cases in {report.seconds:.0f} s: {verdict}"]
    return "\n".join(lines)


_INTRODUCTION = """\
# Attacks

```{note}
This page is written by `make soak`. Do not edit the tables by hand.
```

The attack suites (`tests/attacks`) try to break the library in the ways that tests of behaviour do not: every case is a
function of a seed, and runs in a process of its own, so that a crash or a hang is seen and can be repeated. A short
run is part of `make test`; `make soak` is the long one.

## What is promised, and checked here

| promise | attack |
|---|---|
"""

_PROMISES = """
In short:

- **What survives a kill.** A process that is killed at any moment leaves nothing behind that others miss: its share of
  a [shared budget](pools/budgets.md) returns, its frames of a [ring](sharing.md) are free or whole, a new writer goes
  on, and the other end of a channel hears that it is gone. Shared memory has no name, so none is left over.
- **What a crash can lose.** Of a recording, what came after the last flush: `flush_interval`, 50 milliseconds unless
  you say otherwise. Everything before is readable. Nothing else is written late.
- **Who can connect.** Processes of the same user, as the kernel tells it, on both sides. `uids=` of a channel can name
  others. Nobody else gets an answer, learns a name or keeps anybody waiting.
- **What an untrusted file can do.** A recording, a snapshot, a log, a plan or a message can be refused, or be read as
  something that it is not. It runs no code, reads no byte outside itself, and leaves nothing open.
- **What an address can do.** Calls that take one (`from_pointer`, callbacks that return one, foreign driver tables)
  believe it. They are left out of the attacks.
"""


def write_page(report: SoakReport, path: Path) -> None:
    """The page of the documentation."""
    suites = [load_suite(name) for name in report.tallies]
    lines = [_INTRODUCTION + "".join(f"| {suite.promise} | {suite.name} |\n" for suite in suites) + _PROMISES]
    lines += ["## Outcomes of the last run of `make soak`", ""]
    lines += [f"Seeds from {report.seed} on, {report.cases:,} cases, {report.seconds / 60:.0f} minutes.", ""]
    head, *rows = _rows(report)
    lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows), ""]
    lines += [
        "*fine*: the call did its job. *refused*: a named error, or a `TypeError`, `ValueError` or `OSError`. "
        "*waited*: it waited, as is its job, and heard the signal. *unclear*: an error of Python itself, such as an "
        f"`AttributeError`. The last four ({', '.join(BAD)}) are findings; the table is clean when they are 0.",
        "",
    ]
    if report.fuzzing:
        lines += ["Coverage-guided fuzzing of the native readers, under AddressSanitizer:", ""]
        lines += ["| reader | runs | seconds | outcome |", "|---|---|---|---|"]
        lines += [f"| {line.replace(chr(9), ' | ')} |" for line in report.fuzzing] + [""]
    lines += _endurance(report)
    path.write_text("\n".join(lines).rstrip() + "\n")
