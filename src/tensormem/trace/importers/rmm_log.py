"""Owns: reading the CSV that RMM's logging adaptor writes, and ours after it: `Thread,Time,Action,Pointer,Size,Stream`.

Times are times of a day; a log that runs over midnight goes on. Must not know: who wants the events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensormem.errors import TraceError
from tensormem.trace.definitions import Names
from tensormem.trace.events import Event, EventKind, Reporter
from tensormem.trace.listed import ListedEvents
from tensormem.trace.trace import Trace

HEADER = b"Thread,Time,Action,Pointer,Size,Stream"
_DAY_NS = 86_400 * 10**9
_ROW = re.compile(
    rb"(?P<thread>\d{1,18}),(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)[.:](?P<fraction>\d{1,9}),"
    rb"(?P<action>allocate|free|allocate failure),(?P<pointer>0x[0-9a-fA-F]{1,16}|\(nil\)|0),"
    rb"(?P<size>\d{1,19}),(?P<stream>(?:0x)?[0-9a-fA-F]{1,16}|\(nil\))"
)
_RESOURCE = 1


def matches(head: bytes) -> bool:
    """Whether a file that begins like this is such a log."""
    return head.startswith(HEADER)


def read(data: bytes, source: str) -> Trace:
    """The trace in a log; `TraceError` for a row that is none."""
    names = Names()
    names.reporters[_RESOURCE] = Reporter(_RESOURCE, 0, "RMM log", "gpu:0")
    return Trace(ListedEvents(list(_events(data, source)), names), source=source, format="rmm")


def _events(data: bytes, source: str) -> Iterator[Event]:
    live: dict[int, int] = {}
    first = last = None
    days = 0
    for generation, (offset, row) in enumerate(_rows(data, source), 1):
        clock = _clock_ns(row)
        if last is not None and clock < last - _DAY_NS // 2:
            days += 1
        last = clock
        time = clock + days * _DAY_NS
        first = time if first is None else first
        yield _event(row, max(time - first, 0), generation, live, source, offset)


def _event(row: re.Match[bytes], time: int, generation: int, live: dict[int, int], source: str, offset: int) -> Event:
    action, nbytes = row["action"], int(row["size"])
    pointer = int(row["pointer"], 16) if row["pointer"].startswith(b"0x") else 0
    thread = int(row["thread"])
    stream = 0 if row["stream"] == b"(nil)" else int(row["stream"], 16)
    if nbytes >= 2**63:
        raise TraceError(source, offset, what=f"a block of {nbytes} bytes is none")
    if action == b"allocate failure":
        return Event(time, EventKind.FAIL, nbytes=nbytes, stream=stream, resource=_RESOURCE, thread=thread, other=1)
    if action == b"allocate":
        live[pointer] = generation
        kind = EventKind.ALLOCATE
    else:
        generation, kind = live.pop(pointer, generation), EventKind.DEALLOCATE
    return Event(time, kind, pointer, nbytes, generation, 0, stream, _RESOURCE, thread=thread)


def _rows(data: bytes, source: str) -> Iterator[tuple[int, re.Match[bytes]]]:
    offset = 0
    for line in data.splitlines(keepends=True):
        text = line.strip()
        if text and text != HEADER:
            row = _ROW.fullmatch(text)
            if row is None:
                raise TraceError(source, offset, what=f"no row of an RMM log: {text[:80]!r}")
            yield offset, row
        offset += len(line)


def _clock_ns(row: re.Match[bytes]) -> int:
    seconds = (int(row["h"]) * 60 + int(row["m"])) * 60 + int(row["s"])
    return seconds * 10**9 + int(row["fraction"].ljust(9, b"0"))
