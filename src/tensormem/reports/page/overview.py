"""Owns: the usage of a whole trace in a few hundred points, from the totals that a recording keeps about once a second:
cheap for files of any size, since no event is read.

Must not know: what shows it.
"""

from __future__ import annotations

from typing import NamedTuple

from tensormem.trace import Trace
from tensormem.trace.file import TraceFile

_MOST_POINTS = 2_000
_FEW_POINTS, _FEW_EVENTS = 200, 200_000  # a short recording has few totals, and its events are soon added up


class Overview(NamedTuple):
    """What the program had out, over all resources, at some times.

    >>> max(Overview([0, 5], [16, 24]).totals)
    24
    """

    times_ns: list[int]
    totals: list[int]


def overview_of(trace: Trace, *, most: int = _MOST_POINTS) -> Overview:
    """The totals of a recording; of short ones, and of other traces, the events themselves.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> overview_of(tm.trace.open(path)).totals
    [16, 24, 8, 0]
    """
    points = _from_totals(trace.store) if isinstance(trace.store, TraceFile) else _from_events(trace)
    if len(points) < _FEW_POINTS and trace.event_count <= _FEW_EVENTS:
        points = _from_events(trace)
    # Of each group of neighbours the highest stays: it is what people look for.
    step = max(1, -(-len(points) // most))
    kept = [max(points[at : at + step], key=lambda point: point[1]) for at in range(0, len(points), step)]
    return Overview([time for time, _ in kept], [total for _, total in kept])


def _from_totals(file: TraceFile) -> list[tuple[int, int]]:
    points = []
    for time_ns, totals in file.every_totals():
        out = sum(nbytes for (_, outermost), (nbytes, _) in totals.items() if outermost)
        points.append((time_ns, max(out, 0)))
    return points


def _from_events(trace: Trace) -> list[tuple[int, int]]:
    points, out = [], 0
    live: set[tuple[int, int]] = set()
    for event in trace.store.events():
        key = event.resource, event.generation
        if event.depth == 0 and event.kind == "allocate":
            live.add(key)
            out += event.nbytes
        elif event.depth == 0 and event.kind == "deallocate" and key in live:
            live.remove(key)
            out -= event.nbytes
        points.append((event.time_ns, out))
    return points
