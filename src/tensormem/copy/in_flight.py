"""Owns: what copies that are under way hold: memory that streams may still touch, and a stream beside a caller's own.

Completion that cannot be proven means keep, never free. Must not know: which way a copy goes.
"""

from __future__ import annotations

import threading
from itertools import count

from tensormem import errors
from tensormem._core import Driver, Event, Stream, borrowed_stream

__all__ = ["come_after", "finish", "keep", "strand", "stream_beside"]

_lock = threading.Lock()
_numbers = count()
_in_flight: dict[int, tuple[Event, list[object]]] = {}
_stranded: list[list[object]] = []
# For each stream that was given copies: itself, not owned, and the one beside it.
_sides: dict[tuple[Driver, int], tuple[Stream, Stream]] = {}


def stream_beside(work: Stream) -> Stream:
    """A stream for the host's half of staged copies on `work`; `work` itself where its work is done at once.

    Each has its own, so that a stream that is held up holds up no other.
    """
    if work.driver.name == "host" and work.is_default:
        return work
    place = work.driver, work.id
    with _lock:
        for gone in [each for each, pair in _sides.items() if any(stream.closed for stream in pair)]:
            del _sides[gone]
        if place not in _sides:
            _sides[place] = borrowed_stream(work), Stream(work.driver)
        return _sides[place][1]


def come_after(stream: Stream, other: Stream) -> None:
    """Let the work given to `stream` from now on wait for all that `other` was given."""
    if stream is not other:
        stream.wait(other.record())


def keep(end: Event, work: Stream, kept: list[object]) -> None:
    """Hold what a copy on `work` touches until `end` has passed."""
    number = next(_numbers)
    with _lock:
        _in_flight[number] = end, kept
        over = [each for each, (event, _) in _in_flight.items() if event.done]
        dropped = [_in_flight.pop(each) for each in over]
    del dropped
    # The host's own streams can say when. What a GPU's driver calls must not call the driver: that is looked at later.
    if work.driver.name == "host":
        work.launch(_in_flight.pop, number, None)


def strand(work: Stream, kept: list[object]) -> None:
    """A copy failed half-way: what its streams may still touch is let go when they have passed, or never."""
    try:
        for stream in {work, *_sides.get((work.driver, work.id), ())}:
            stream.synchronize()
    except errors.TensormemError:
        _stranded.append(kept)


def finish(driver_name: str) -> None:
    """Wait for the copies of a driver that is closing, and let go of what they hold.

    >>> finish("host")
    """
    with _lock:
        numbers = [number for number, (end, _) in _in_flight.items() if end.driver.name == driver_name]
        ending = [_in_flight.pop(number) for number in numbers]
    for end, kept in ending:
        try:
            end.synchronize()
        except errors.TensormemError:
            _stranded.append(kept)
