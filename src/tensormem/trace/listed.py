"""Owns: a trace that lies in memory as a list of events, for traces that came from elsewhere.

Must not know: where they came from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from tensormem.trace.definitions import Names
from tensormem.trace.events import Event

_FOREVER = 2**64


class ListedEvents:
    """Events in a list, sorted by time, and what their numbers stand for.

    >>> from tensormem.trace.events import EventKind
    >>> ListedEvents([Event(7, EventKind.COUNTER)], Names()).duration_ns
    7
    """

    complete = True
    dropped = 0

    def __init__(self, events: list[Event], names: Names, *, wall_ns: int | None = None) -> None:
        events.sort(key=_time)
        self._listed, self.names, self._wall_ns = events, names, wall_ns

    @property
    def event_count(self) -> int:
        """How many there are."""
        return len(self._listed)

    @property
    def duration_ns(self) -> int:
        """The time of the last one."""
        return self._listed[-1].time_ns if self._listed else 0

    @property
    def wall_ns(self) -> int | None:
        """When time 0 was; None when nobody said."""
        return self._wall_ns

    def events(self, start_ns: int = 0, end_ns: int = _FOREVER) -> Iterator[Event]:
        """Those from `start_ns` up to and without `end_ns`."""
        first = bisect_left(self._listed, start_ns, key=_time)
        for at in range(first, len(self._listed)):
            if self._listed[at].time_ns >= end_ns:
                return
            yield self._listed[at]

    def totals(self, time_ns: int) -> tuple[int, dict[tuple[int, bool], tuple[int, int]]]:
        """None are kept: adding up from the beginning is quick here."""
        return 0, {}


def _time(event: Event) -> int:
    return event.time_ns
