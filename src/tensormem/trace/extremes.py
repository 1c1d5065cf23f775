"""Owns: the most and the least that a program had out between two times, one stretch after the other over a trace:
as the recording says it, or from the events, a window at a time. No spike is too short to be in it.

Must not know: what shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tensormem.trace import columns
from tensormem.trace.events import Event, EventKind
from tensormem.trace.file import TraceFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensormem.trace.trace import Trace

__all__ = ["Extremes", "extremes_of"]

_WINDOW_EVENTS = 1_000_000
_STRETCHES = 256  # of a window, at most


class Extremes(NamedTuple):
    """The highest and the lowest usage of a stretch of time, and when each was.

    >>> Extremes(5, 4096, 9, 0).highest
    4096
    """

    highest_ns: int
    highest: int
    lowest_ns: int
    lowest: int


def extremes_of(trace: Trace) -> list[Extremes]:
    """Stretch by stretch, by time; only the events that belong to none of the file's own peaks are read.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> [stretch.highest for stretch in extremes_of(tm.trace.open(path))]
    [16, 24, 8, 0]
    """
    store = trace.store
    if not isinstance(store, TraceFile):
        return list(_by_event(store.events()))
    recorded = [Extremes(peak.highest_ns, peak.highest, peak.lowest_ns, peak.lowest) for peak in store.peaks()]
    if recorded:
        return recorded
    return list(_by_column(store) if columns.available() else _by_event(store.events()))


def _by_event(events: Iterator[Event]) -> Iterator[Extremes]:
    out = 0
    live: set[tuple[int, int]] = set()
    for event in events:
        if event.depth or event.kind not in (EventKind.ALLOCATE, EventKind.DEALLOCATE):
            continue
        block = event.resource, event.generation
        if event.kind is EventKind.ALLOCATE:
            live.add(block)
            out += event.nbytes
        elif block in live:
            live.remove(block)
            out -= event.nbytes
        else:
            continue
        yield Extremes(event.time_ns, out, event.time_ns, out)


def _by_column(file: TraceFile) -> Iterator[Extremes]:
    out, first = 0, _FirstGenerations()
    for start_ns, end_ns in _windows(file):
        rows = first.known(columns.Columns(file, start_ns, end_ns).traffic(every_layer=False))
        if not len(rows):
            continue
        sums = out + _signed(rows).cumsum()
        times = rows["time_ns"]
        step = max(1, -(-len(rows) // _STRETCHES))
        for at in range(0, len(rows), step):
            piece = sums[at : at + step]
            high, low = at + int(piece.argmax()), at + int(piece.argmin())
            yield Extremes(int(times[high]), int(sums[high]), int(times[low]), int(sums[low]))
        out = int(sums[-1])


def _windows(file: TraceFile) -> Iterator[tuple[int, int]]:
    """Times between which there are about as many events as are soon read."""
    start, count = 0, 0
    for first, _, events in file.event_chunks():
        if count >= _WINDOW_EVENTS and first > start:
            yield start, first
            start, count = first, 0
        count += events
    yield start, 2**64


def _signed(rows: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    return np.where(rows["kind"] == 1, 1, -1) * rows["nbytes"].astype(np.int64)


class _FirstGenerations:
    """Which blocks began in the trace: generations of a resource rise, so those below its first one did not."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def known(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The rows without the ends of blocks from before; windows have to come in their order."""
        import numpy as np

        keep = np.ones(len(rows), dtype=bool)
        begins = rows["kind"] == 1
        for resource in np.unique(rows["resource"]).tolist():
            mine = rows["resource"] == resource
            begun = rows["generation"][mine & begins]
            lowest = min(int(begun.min()) if len(begun) else 2**64 - 1, self._first.get(resource, 2**64 - 1))
            self._first[resource] = lowest
            keep &= ~(mine & ~begins & (rows["generation"] < np.uint64(lowest)))
        found: NDArray[Any] = rows[keep]
        return found
