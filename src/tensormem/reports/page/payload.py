"""Owns: a trace as the bytes that a page reads: names as JSON, then the records of the events, byte plane by byte
plane, all of it deflated.

Reading a million events in Python takes seconds; cutting their records into planes (the first byte of every record, the
second of every record, ...) is sixty-four slices. Planes of nothing but zeros are left out, the others deflate well,
and the page puts columns of numbers together from them.
Must not know: HTML.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from tensormem.reports.page.carried import MOST_LOOKED_BACK, Carried, carried_into
from tensormem.reports.page.overview import overview_of
from tensormem.reports.page.windows import Window, window_of
from tensormem.trace import Event, Trace
from tensormem.trace.file import TraceFile
from tensormem.trace.format import EVENT, EVENT_BYTES, KINDS

VERSION = 1
_LENGTH = struct.Struct("<I")
_NUMBERS = {kind: number for number, kind in KINDS.items()}
_WIDE = 2**64 - 1
_LEVEL = 4  # deflate: twice as quick as the usual 6 on planes, and a few per cent larger


class Payload(NamedTuple):
    """Deflated bytes, how many they are when inflated, and how many events and which window they hold.

    >>> Payload(b"", 0, 0, Window(0, 1)).window.is_whole
    True
    """

    data: bytes
    size: int
    events: int
    window: Window


def payload_of(trace: Trace, window: Window | None = None, *, look_back: int = MOST_LOOKED_BACK) -> Payload:
    """The bytes of a page's data, for a window of a trace or for as much of it as a page can show; behind the events of
    a window come the allocations of blocks that were out when it began, found among so many events before it.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> payload_of(tm.trace.open(path)).events
    4
    """
    window = window_of(trace) if window is None else window
    named = _Named()
    parts: list[tuple[int, bytes | memoryview]]
    if isinstance(trace.store, TraceFile):
        parts = list(trace.store.records(window.start_ns, window.end_ns))
    else:
        parts = [(named.thread(event), named.record(event)) for event in trace.store.events(*window[:2])]
    count = sum(len(records) for _, records in parts) // EVENT_BYTES
    carried = carried_into(trace, window.start_ns, look_back=look_back)
    parts += carried.records
    parts += [(named.thread(event), named.record(event)) for event in carried.events]
    planes = _planes(b"".join(records for _, records in parts))
    rows = {"events": count, "planes": sorted(planes), "threads": _runs(parts)}
    head = json.dumps(
        _head(trace, window, named) | _carried(carried) | rows,
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode("utf-8", "replace")
    pieces = [_LENGTH.pack(len(head)), head, *(planes[number] for number in sorted(planes))]
    return Payload(_deflate(pieces), sum(map(len, pieces)), count, window)


def _deflate(pieces: Iterable[bytes]) -> bytes:
    # Times, addresses and generations change in every record: their low bytes are noise, which deflate only slows down.
    stream = zlib.compressobj(_LEVEL)
    return b"".join([*(stream.compress(piece) for piece in pieces), stream.flush()])


def _planes(records: bytes) -> dict[int, bytes]:
    planes = ((number, records[number::EVENT_BYTES]) for number in range(EVENT_BYTES))
    return {number: plane for number, plane in planes if plane.count(0) != len(plane)}


def _runs(parts: Iterable[tuple[int, bytes | memoryview]]) -> list[tuple[int, int]]:
    """(thread, events) for one piece after the other; neighbours of one thread are one."""
    runs: list[tuple[int, int]] = []
    for thread, records in parts:
        before = runs.pop()[1] if runs and runs[-1][0] == thread else 0
        runs.append((thread, before + len(records) // EVENT_BYTES))
    return runs


class _Named:
    """Numbers for what events in memory have by name, and their records as a file would have them."""

    def __init__(self) -> None:
        self.tags: dict[str, int] = {}
        self.threads: dict[int, int] = {}

    def thread(self, event: Event) -> int:
        return self.threads.setdefault(event.thread, len(self.threads) + 1) if event.thread else 0

    def record(self, event: Event) -> bytes:
        tag = self.tags.setdefault(event.tag, len(self.tags) + 1) if event.tag else 0
        wide = (event.address, event.nbytes, event.generation, event.other, event.stream)
        return EVENT.pack(
            min(event.time_ns, _WIDE),
            *(number & _WIDE for number in wide),
            event.resource,
            tag,
            event.stack,
            _NUMBERS[event.kind],
            event.depth,
            event.detail & 255,
            0,
        )


def _head(trace: Trace, window: Window, named: _Named) -> dict[str, Any]:
    names = trace.names
    overview = None if window.is_whole else overview_of(trace)
    return {
        "version": VERSION,
        "source": trace.source,
        "format": trace.format,
        "unit": "step" if trace.format == "lifetimes" else "ns",
        "complete": trace.complete,
        "dropped": trace.dropped,
        "total_events": trace.event_count,
        "duration_ns": trace.duration_ns,
        "wall_ns": trace.wall_ns,
        "window": [window.start_ns, window.end_ns, window.why],
        "overview": None if overview is None else list(overview),
        "tags": [[number, text] for text, number in named.tags.items()] or list(names.tags.items()),
        "thread_names": [(number, f"thread {thread}") for thread, number in named.threads.items()]
        or list(names.threads.items()),
        "resources": [[one.id, one.below, one.name, one.space, int(one.foreign)] for one in names.reporters.values()],
        "frames": [[number, *frame] for number, frame in names.frames.items()],
        "stacks": list(names.stacks.items()),
    }


def _carried(carried: Carried) -> dict[str, Any]:
    return {"carried": carried.totals, "carried_blocks": len(carried.records) + len(carried.events)}
