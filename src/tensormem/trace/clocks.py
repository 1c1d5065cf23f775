"""Owns: which moment of one recording is which of another: by the clock they share, by a measured offset, or by the
calendar.

Must not know: files, how an offset is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tensormem.distributed.clocks import ClockOffset

__all__ = ["Origin", "align"]

_SAME_MACHINE_NS = 20_000_000  # by so much a calendar is moved between two recordings at most
_CALENDAR_ERROR_NS = 100_000_000  # what two machines' calendars are trusted to


class Origin(NamedTuple):
    """When a recording began, by the calendar and by the monotonic clock of its machine."""

    wall_ns: int
    monotonic_ns: int

    @property
    def started_ns(self) -> int:
        """When its machine started, by the calendar: what tells machines from one another."""
        return self.wall_ns - self.monotonic_ns


def align(origins: Sequence[Origin], given: Sequence[ClockOffset | None]) -> list[ClockOffset]:
    """For each recording, what to add to its monotonic clock to have that of the first, and the error of that: what was
    given, nothing for the same machine, or by the calendar.

    >>> align([Origin(5_000_000_000, 7), Origin(9_000_000_000, 7)], [None, None])[1].offset_ns
    4000000000
    >>> align([Origin(5_000_000_000, 7), Origin(9_000_000_000, 7)], [None, ClockOffset(0, 0)])[1].error_ns
    4000000000
    """
    first = origins[0]
    return [
        _between(first, origin) if offset is None else _believed(offset, first, origin)
        for origin, offset in zip(origins, given, strict=True)
    ]


def _believed(offset: ClockOffset, first: Origin, other: Origin) -> ClockOffset:
    """As it was given. Who says that it is exact says that both are of one machine: if their calendars say otherwise,
    what they say is the error.
    """
    apart = abs(other.started_ns - first.started_ns - offset.offset_ns)
    return offset if offset.error_ns or apart <= _SAME_MACHINE_NS else offset._replace(error_ns=apart)


def _between(first: Origin, other: Origin) -> ClockOffset:
    apart = other.started_ns - first.started_ns
    return ClockOffset(0, 0) if abs(apart) <= _SAME_MACHINE_NS else ClockOffset(apart, _CALENDAR_ERROR_NS)
