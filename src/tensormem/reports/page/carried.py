"""Owns: what the program had out when a window of a trace began: by resource, from the totals that a recording keeps;
and block by block, from the events before the window, as far back as can be read in a few seconds.

Must not know: how a page shows it.
"""

from __future__ import annotations

import heapq
import struct
from typing import NamedTuple

from tensormem.trace import Event, EventKind, Trace
from tensormem.trace.file import TraceFile
from tensormem.trace.format import EVENT_BYTES

MOST_LOOKED_BACK = 5_000_000  # events before a window: about two seconds
MOST_BLOCKS = 200_000
_ALLOCATE, _DEALLOCATE = 1, 2
_PART = struct.Struct("<Q16xQ16xI8xB3x")  # time, generation, resource and kind of a record
_NBYTES = slice(16, 24)


class Carried(NamedTuple):
    """(resource, bytes, blocks) of all that the program had out, and the blocks that are known one by one: of a file
    (thread, record) of their allocations, otherwise the events. Those of resources below others are among them.

    >>> Carried([(1, 64, 1)], [], []).totals
    [(1, 64, 1)]
    """

    totals: list[tuple[int, int, int]]
    records: list[tuple[int, bytes]]
    events: list[Event]


def carried_into(trace: Trace, start_ns: int, *, look_back: int = MOST_LOOKED_BACK, most: int = MOST_BLOCKS) -> Carried:
    """What was out at `start_ns`. Of more blocks than `most` the largest are known.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> [event.tag for event in carried_into(tm.trace.open(path), 3).events]
    ['a', 'b']
    """
    if not start_ns:
        return Carried([], [], [])
    totals = _totals(trace, start_ns)
    if isinstance(trace.store, TraceFile):
        return Carried(totals, _largest_records(_records_out(trace.store, start_ns, look_back), most), [])
    events = _events_out(trace, start_ns)
    return Carried(totals, [], heapq.nlargest(most, events, key=_nbytes) if len(events) > most else events)


def _totals(trace: Trace, start_ns: int) -> list[tuple[int, int, int]]:
    taken_ns, totals = trace.store.totals(start_ns)
    out = {resource: pair for (resource, outermost), pair in totals.items() if outermost}
    for event in trace.store.events(taken_ns, start_ns):
        if event.depth == 0 and event.kind in (EventKind.ALLOCATE, EventKind.DEALLOCATE):
            sign = 1 if event.kind is EventKind.ALLOCATE else -1
            nbytes, blocks = out.get(event.resource, (0, 0))
            out[event.resource] = nbytes + sign * event.nbytes, blocks + sign
    return [(resource, nbytes, blocks) for resource, (nbytes, blocks) in out.items()]


def _events_out(trace: Trace, start_ns: int) -> list[Event]:
    live: dict[tuple[int, int], Event] = {}
    for event in trace.store.events(0, start_ns):
        if event.kind is EventKind.ALLOCATE:
            live[event.resource, event.generation] = event
        elif event.kind is EventKind.DEALLOCATE:
            live.pop((event.resource, event.generation), None)
    return list(live.values())


def _nbytes(event: Event) -> int:
    return event.nbytes


def _since(file: TraceFile, start_ns: int, look_back: int) -> int:
    """From when on events are read: as many chunks before the window as there is time for."""
    total, since = 0, start_ns
    for first, _, count in reversed([chunk for chunk in file.event_chunks() if chunk[0] < start_ns]):
        total += count
        if total > look_back:
            return since
        since = first
    return 0


def _records_out(file: TraceFile, start_ns: int, look_back: int) -> list[tuple[int, memoryview]]:
    # Chunks of threads overlap, and a block may end in one that is read before the one where it begins.
    live: dict[tuple[int, int], tuple[int, int, int]] = {}  # when it began, which part tells of it, and where in it
    ended: dict[tuple[int, int], int] = {}
    since = _since(file, start_ns, look_back)
    parts = list(file.records(since, start_ns))
    for part, (_, records) in enumerate(parts):
        for place, (time, generation, resource, kind) in enumerate(_PART.iter_unpack(records)):
            # Of a block from before `since` the end may be in a chunk that is not read.
            if kind > _DEALLOCATE or not since <= time < start_ns:
                continue
            key = resource, generation
            if kind == _DEALLOCATE:
                begun = live.get(key)
                if begun is not None and begun[0] <= time:
                    del live[key]
                else:
                    ended[key] = time
            elif kind == _ALLOCATE:
                if ended.get(key, -1) >= time:
                    del ended[key]
                else:
                    live[key] = time, part, place
    return [(parts[part][0], _record(parts[part][1], place)) for _, part, place in live.values()]


def _record(records: memoryview, place: int) -> memoryview:
    return records[place * EVENT_BYTES : (place + 1) * EVENT_BYTES]


def _largest_records(records: list[tuple[int, memoryview]], most: int) -> list[tuple[int, bytes]]:
    if len(records) > most:
        records = heapq.nlargest(most, records, key=lambda one: int.from_bytes(one[1][_NBYTES], "little"))
    return [(thread, bytes(record)) for thread, record in records]
