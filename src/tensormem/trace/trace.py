"""Owns: `Trace`, the one object that every recording and every imported trace is: events by time, the blocks they tell
of, peaks by space, tag or resource, and windows.

Must not know: any file format; a store brings the events and the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal, Protocol

from tensormem.construction import constructed_once
from tensormem.errors import InvalidArgument
from tensormem.spaces import LogicalMemorySpace
from tensormem.trace import columns
from tensormem.trace.block_lives import BlockLife, lives_by_column, lives_by_event
from tensormem.trace.definitions import Names
from tensormem.trace.events import Event, EventKind, Frame
from tensormem.trace.file import TraceFile
from tensormem.trace.lifetimes import Lifetime
from tensormem.trace.peaks import Peak, RunningPeak

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.spaces.words import SpaceLike

__all__ = ["EventStore", "Trace"]

_FOREVER = 2**64
By = Literal["space", "tag", "resource"]


class EventStore(Protocol):
    """What a trace stands on: a file, or a list in memory."""

    names: Names
    complete: bool

    @property
    def event_count(self) -> int:
        """How many events there are."""

    @property
    def duration_ns(self) -> int:
        """The time of the last one."""

    @property
    def dropped(self) -> int:
        """How many were lost."""

    @property
    def wall_ns(self) -> int | None:
        """When time 0 was, in nanoseconds since 1970; None when nobody said."""

    def events(self, start_ns: int = 0, end_ns: int = _FOREVER) -> Iterator[Event]:
        """Those from `start_ns` up to and without `end_ns`, by time."""

    def totals(self, time_ns: int) -> tuple[int, dict[tuple[int, bool], tuple[int, int]]]:
        """What was out at some time before: that time, and (bytes, blocks) by (resource, outermost)."""


@constructed_once
class Trace:
    """What happened, from a recording or from another tool's file; made by `tensormem.trace.open`.

    >>> import tempfile, pathlib
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> mr = tm.mr.HostMemoryResource()
    >>> with tm.trace(path):
    ...     block = mr.allocate(1000, tag="weights")
    ...     mr.deallocate(block)
    >>> trace = tm.trace.open(path)
    >>> [event.kind for event in trace.events() if event.tag == "weights"]
    ['allocate', 'deallocate']
    >>> trace.peaks("tag")["weights"].nbytes
    1000
    """

    def __init__(
        self,
        store: EventStore,
        *,
        source: str,
        format: str,
        bounds: tuple[int, int] = (0, _FOREVER),
        lifetimes: list[Lifetime] | None = None,
    ) -> None:
        self._store, self.source, self.format, self._bounds = store, source, format, bounds
        self._lifetimes = lifetimes

    @property
    def names(self) -> Names:
        """What the numbers in events stand for."""
        return self._store.names

    @property
    def store(self) -> EventStore:
        """What the events come from; a `TraceFile` for a recording."""
        return self._store

    @property
    def bounds(self) -> tuple[int, int]:
        """From when up to and without when `events` tells, in nanoseconds."""
        return self._bounds

    @property
    def event_count(self) -> int:
        """How many events the whole trace has."""
        return self._store.event_count

    @property
    def duration_ns(self) -> int:
        """The time of the last event of the whole trace."""
        return self._store.duration_ns

    @property
    def dropped(self) -> int:
        """How many events were lost while it was recorded."""
        return self._store.dropped

    @property
    def complete(self) -> bool:
        """Whether the recording came to its end; False when the process was killed."""
        return self._store.complete

    @property
    def wall_ns(self) -> int | None:
        """When time 0 was, in nanoseconds since 1970; None when nobody said."""
        return self._store.wall_ns

    def events(self) -> Iterator[Event]:
        """All events, by time."""
        return self._store.events(*self._bounds)

    def stack(self, event: Event | BlockLife) -> tuple[Frame, ...]:
        """The Python calls behind an event, the innermost first; () when stacks were not recorded."""
        return self.names.stack(event.stack)

    def window(self, start_ns: int, end_ns: int) -> Trace:
        """The part from `start_ns` up to and without `end_ns`; of a large file, only that part is read."""
        if not 0 <= start_ns < end_ns:
            raise InvalidArgument(f"a window begins before it ends, not at {start_ns} and {end_ns}")
        low, high = self._bounds
        bounds = max(low, start_ns), min(high, end_ns)
        return Trace(self._store, source=self.source, format=self.format, bounds=bounds)

    def blocks(self, *, resource: int | None = None) -> Iterator[BlockLife]:
        """Every block that the program asked for, or all that one resource handed out; first those that ended."""
        if resource is not None and not isinstance(resource, int):
            raise InvalidArgument(f"a trace has a number for each resource, not {type(resource).__name__}")
        if isinstance(self._store, TraceFile) and columns.available():
            found = lives_by_column(columns.Columns(self._store, *self._bounds), self.names, resource)
            if found is not None:
                return found
        return lives_by_event(self._traffic(resource), self.names)

    def census(self) -> tuple[Counter[EventKind], int]:
        """How many events there are of each kind, and how many threads they come from."""
        if isinstance(self._store, TraceFile) and columns.available():
            return columns.Columns(self._store, *self._bounds).census()
        kinds: Counter[EventKind] = Counter()
        threads: set[int] = set()
        for event in self.events():
            kinds[event.kind] += 1
            threads.add(event.thread)
        return kinds, len(threads - {0}) or 1

    def lifetimes(self, *, space: SpaceLike | None = None, resource: int | None = None) -> list[Lifetime]:
        """When each block lived, counted in allocations and deallocations, and how large it was: for plans and replays.

        Blocks that were out when the trace began live from its beginning, those that were never given back to its end.
        """
        if self._lifetimes is not None:
            return list(self._lifetimes)
        wanted = None if space is None else str(LogicalMemorySpace.parse(space))
        lives = [life for life in self.blocks(resource=resource) if wanted in (None, life.space)]
        lives.sort(key=lambda life: (life.lower, life.generation))
        return [Lifetime(str(number), life.lower, life.upper, life.nbytes) for number, life in enumerate(_real(lives))]

    def peaks(self, by: By = "space") -> dict[str, Peak]:
        """The most that was out at once, by space, by tag, or by resource; and over all as "" for spaces and tags.

        Spaces and tags count what the program asked for. Resources count all that passed them, so one that stands below
        another shows what it kept for that one. What was allocated before the trace began is not counted.
        """
        if by not in ("space", "tag", "resource"):
            raise InvalidArgument(f"peaks are by space, tag or resource, not by {by!r}")
        if isinstance(self._store, TraceFile) and columns.available():
            return self._peaks_by_column(self._store, by)
        return self._peaks_by_event(by)

    def _peaks_by_event(self, by: By) -> dict[str, Peak]:
        name = self._namer(by)
        running: dict[str, RunningPeak] = {}
        seen: dict[tuple[int, int], int] = {}
        for key, (nbytes, count) in self._carried(by).items():
            running[key] = RunningPeak(max(nbytes, 0), max(count, 0), self._bounds[0])
        for event in self._traffic(None, every_layer=by == "resource"):
            block = event.resource, event.generation
            begins = event.kind is EventKind.ALLOCATE
            if begins:
                seen[block] = event.nbytes
            elif seen.pop(block, None) is None and not self._bounds[0]:
                continue
            for key in (name(event),) if by == "resource" else (name(event), ""):
                one = running.setdefault(key, RunningPeak(0, 0, self._bounds[0]))
                one.add(event.nbytes if begins else -event.nbytes, event.time_ns)
        return {key: running[key].peak() for key in sorted(running)}

    def _peaks_by_column(self, file: TraceFile, by: By) -> dict[str, Peak]:
        rows = columns.Columns(file, *self._bounds).traffic(every_layer=by == "resource")
        rows = rows if self._bounds[0] else columns.known_only(rows)
        sums = columns.running_sums(rows, self._number_namer(by))
        if by != "resource" and len(rows):
            sums |= columns.running_sums(rows, lambda resource, tag: "")
        carried = self._carried(by)
        peaks = {}
        for key in sorted(sums.keys() | carried.keys()):
            nbytes, blocks = (max(number, 0) for number in carried.get(key, (0, 0)))
            running = RunningPeak(nbytes, blocks, self._bounds[0])
            if key in sums:
                running.follow(*sums[key])
            peaks[key] = running.peak()
        return peaks

    def close(self) -> None:
        """Let go of the file behind it, if there is one."""
        close = getattr(self._store, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Trace {self.source!r} ({self.format}), {self.event_count} events, {self.duration_ns / 1e9:.3f} s>"

    def _traffic(self, resource: int | None, *, every_layer: bool = False) -> Iterator[Event]:
        for event in self.events():
            if event.kind is not EventKind.ALLOCATE and event.kind is not EventKind.DEALLOCATE:
                continue
            if every_layer or (event.depth == 0 if resource is None else event.resource == resource):
                yield event

    def _namer(self, by: By) -> Callable[[Event], str]:
        names = self.names
        if by == "space":
            return lambda event: names.space(event.resource)
        if by == "tag":
            return lambda event: event.tag or "untagged"
        return lambda event: names.resource(event.resource)

    def _number_namer(self, by: By) -> Callable[[int, int], str]:
        names = self.names
        if by == "space":
            return lambda resource, tag: names.space(resource)
        if by == "tag":
            return lambda resource, tag: (names.tags.get(tag) or f"tag {tag}") if tag else "untagged"
        return lambda resource, tag: names.resource(resource)

    def _carried(self, by: By) -> dict[str, tuple[int, int]]:
        """What was out at the beginning of a window, as the newest totals before it and the events since then tell."""
        if not self._bounds[0] or by == "tag":
            return {}
        taken_ns, totals = self._store.totals(self._bounds[0])
        out: dict[tuple[int, bool], tuple[int, int]] = dict(totals)
        for event in self._store.events(taken_ns, self._bounds[0]):
            if event.kind in (EventKind.ALLOCATE, EventKind.DEALLOCATE):
                sign = 1 if event.kind is EventKind.ALLOCATE else -1
                nbytes, count = out.get((event.resource, event.depth == 0), (0, 0))
                out[event.resource, event.depth == 0] = nbytes + sign * event.nbytes, count + sign
        carried: dict[str, tuple[int, int]] = {}
        for (resource, outermost), (nbytes, count) in out.items():
            keys = [self.names.resource(resource)] if by == "resource" else [self.names.space(resource), ""]
            for key in keys if outermost or by == "resource" else ():
                before = carried.get(key, (0, 0))
                carried[key] = before[0] + nbytes, before[1] + count
        return carried


def _real(lives: list[BlockLife]) -> Iterator[BlockLife]:
    # A block that was given back by the very event that told of it lived for no moment of this trace.
    return (life for life in lives if life.upper > life.lower and life.nbytes > 0)
