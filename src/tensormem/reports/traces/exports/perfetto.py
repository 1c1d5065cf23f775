"""Owns: writing a trace in Chrome's trace event format, which Perfetto opens: bytes over time per space, counters of
the program, tag scopes as slices of their threads, failures, moves and copies as marks.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from tensormem.trace import Event, EventKind, Trace

_PROCESS = 1


def write(trace: Trace, out: BinaryIO) -> None:
    """One JSON document, an event a line."""
    out.write(b'{"displayTimeUnit": "ns", "traceEvents": [')
    for number, row in enumerate(_rows(trace)):
        out.write((b",\n" if number else b"\n") + json.dumps(row, ensure_ascii=False).encode())
    out.write(b"\n]}\n")


def _rows(trace: Trace) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": _PROCESS, "name": "process_name", "args": {"name": f"tensormem: {trace.source}"}}
    for thread, name in sorted(trace.names.threads.items()):
        yield {"ph": "M", "pid": _PROCESS, "tid": thread, "name": "thread_name", "args": {"name": name or str(thread)}}
    usage = _Usage(trace)
    for event in trace.events():
        row = usage.row(event) or _mark(event)
        if row is not None:
            yield {"pid": _PROCESS, "ts": event.time_ns / 1000, **row}


class _Usage:
    """Bytes that are out, by space; a counter row whenever that changes."""

    def __init__(self, trace: Trace) -> None:
        self._names = trace.names
        self._bytes: dict[str, int] = {}
        self._live: set[tuple[int, int]] = set()

    def row(self, event: Event) -> dict[str, Any] | None:
        if event.depth or event.kind not in (EventKind.ALLOCATE, EventKind.DEALLOCATE):
            return None
        block = event.resource, event.generation
        begins = event.kind is EventKind.ALLOCATE
        if begins:
            self._live.add(block)
        elif block not in self._live:
            return None  # from before the trace
        else:
            self._live.discard(block)
        space = self._names.space(event.resource)
        self._bytes[space] = self._bytes.get(space, 0) + (event.nbytes if begins else -event.nbytes)
        return {"ph": "C", "name": f"bytes in {space}", "args": {"bytes": self._bytes[space]}}


def _mark(event: Event) -> dict[str, Any] | None:
    where = {"tid": event.thread, "cat": "memory"}
    if event.kind is EventKind.TAG_BEGIN:
        return {"ph": "B", "name": event.tag, **where}
    if event.kind is EventKind.TAG_END:
        return {"ph": "E", "name": event.tag, **where}
    if event.kind is EventKind.COUNTER:
        return {"ph": "C", "name": event.tag, "args": {"value": event.other}}
    if event.kind in (EventKind.FAIL, EventKind.MOVE, EventKind.COPY) and not event.depth:
        return {"ph": "i", "s": "t", "name": event.kind.value, "args": {"nbytes": event.nbytes}, **where}
    return None
