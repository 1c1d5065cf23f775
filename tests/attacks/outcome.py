"""Owns: how a case of an attack can end, and what a case says about itself while it runs.

A case is a function of a seed. It returns one of the good outcomes, or raises; a process that dies or does not answer
is seen from outside. Must not know: any attack, and how cases are spread over processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tensormem import errors

__all__ = ["BAD", "CANNOT_BEGIN", "Expected", "Finding", "Leak", "Outcome", "Wrong", "outcome_of_error"]


class Outcome(StrEnum):
    """How a case ended. The first three are as promised, `unclear` is an error without a name of ours."""

    FINE = "fine"
    REFUSED = "refused"
    WAITED = "waited"
    UNCLEAR = "unclear"
    CRASH = "crash"
    HANG = "hang"
    LEAK = "leak"
    WRONG = "wrong"


# The exit code of a worker whose batch did not come to its first case, or not to its end.
CANNOT_BEGIN = 86
BAD = (Outcome.CRASH, Outcome.HANG, Outcome.LEAK, Outcome.WRONG)


class Expected(Exception):
    """Raised by what a case gave to be called back. Where nobody can hear it, the hook of the interpreter does."""


class Wrong(AssertionError):
    """Something that must hold does not."""


class Leak(AssertionError):
    """Something is held that nobody uses any more."""


@dataclass(frozen=True)
class Finding:
    """A case that ended badly: which, how, and what it was doing."""

    suite: str
    seed: int
    first_seed: int
    outcome: Outcome
    what: str

    @property
    def kind(self) -> tuple[str, str, str]:
        """The same for findings that are probably the same mistake."""
        return self.suite, self.outcome, self.what.split("\n", 1)[0].split("(", 1)[0][:160]


# Errors by which Python itself refuses a wrong type, a wrong value, or what the system does not give.
_REFUSALS = (errors.TensormemError, TypeError, ValueError, OverflowError, OSError, MemoryError, BufferError)
_REFUSALS += (StopIteration, NotImplementedError, ImportError)  # type: ignore[assignment]
_BUGS = (errors.InternalError, SystemError, AssertionError)


def outcome_of_error(error: BaseException) -> Outcome:
    """What it means that hostile arguments ended in this error."""
    if isinstance(error, Leak):
        return Outcome.LEAK
    if isinstance(error, _BUGS):
        return Outcome.WRONG
    if isinstance(error, _REFUSALS):
        return Outcome.REFUSED
    return Outcome.UNCLEAR
