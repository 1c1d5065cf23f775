"""Owns: what came of a check and of a group of checks, as plain data with a JSON form.

Must not know: how checks are run or shown.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """How a check or a group ended. `not offered` is the device's right; `not run` is the user's or the machine's.

    >>> Verdict("not offered").is_trouble, Verdict.HUNG.is_trouble
    (False, True)
    """

    PASSED = "passed"
    FAILED = "failed"
    HUNG = "hung"
    CRASHED = "crashed"
    NOT_OFFERED = "not offered"
    NOT_RUN = "not run"

    @property
    def is_trouble(self) -> bool:
        """Whether somebody should look at it."""
        return self in (Verdict.FAILED, Verdict.HUNG, Verdict.CRASHED)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check: what it promises, how it ended, and why if it did not pass.

    >>> CheckResult("bytes come back", Verdict.PASSED).why
    ''
    """

    name: str
    verdict: Verdict
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one thing takes, in microseconds: through tensormem, and by the driver's bare calls (None: not compared).

    >>> Measurement("allocate", 3.0, 1.5).ratio
    2.0
    """

    name: str
    microseconds: float
    bare_microseconds: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times the bare calls' time it takes."""
        return self.microseconds / self.bare_microseconds if self.bare_microseconds else None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """A group of checks that ran in a process of its own.

    >>> GroupResult("memory", "Memory", (CheckResult("bytes come back", Verdict.PASSED),)).verdict
    <Verdict.PASSED: 'passed'>
    """

    name: str
    title: str
    checks: tuple[CheckResult, ...] = ()
    ending: Verdict = Verdict.PASSED
    """How the process ended: `passed`, `hung`, `crashed`, or why it never began."""
    why: str = ""
    seconds: float = 0.0
    calls: dict[str, int | None] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    output: str = ""
    """The last lines that the process printed, when it did not end well."""

    @property
    def verdict(self) -> Verdict:
        """How the group ended as a whole; a group of which nothing was offered is not offered."""
        if self.ending is not Verdict.PASSED:
            return self.ending
        if any(check.verdict.is_trouble for check in self.checks):
            return Verdict.FAILED
        return Verdict.PASSED if self.count(Verdict.PASSED) else Verdict.NOT_OFFERED

    @property
    def reason(self) -> str:
        """Why it ended so: of the process, or what all checks say alike."""
        whys = {check.why for check in self.checks}
        return self.why or (whys.pop() if len(whys) == 1 and self.verdict is Verdict.NOT_OFFERED else "")

    def count(self, verdict: Verdict) -> int:
        """How many checks ended so."""
        return sum(check.verdict is verdict for check in self.checks)

    def as_json(self) -> dict[str, object]:
        """Raw values under stable keys."""
        return {**asdict(self), "verdict": str(self.verdict)}
