"""Owns: the stream beside a caller's own, on which the host's half of staged copies runs.

Must not know: which way a copy goes.
"""

from __future__ import annotations

import threading

from tensormem._core import Driver, Stream, borrowed_stream

__all__ = ["come_after", "stream_beside", "streams_of"]

_lock = threading.Lock()
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


def streams_of(work: Stream) -> list[Stream]:
    """The stream, and the one beside it if it has one: all that a copy on `work` may have queued work on."""
    with _lock:
        return [work, *_sides.get((work.driver, work.id), ())[1:]]


def come_after(stream: Stream, other: Stream) -> None:
    """Let the work given to `stream` from now on wait for all that `other` was given."""
    if stream is not other:
        stream.wait(other.record())
