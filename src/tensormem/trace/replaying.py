"""Owns: replays: the allocations of a trace, in order and on their streams, through a stack of resources; and what came
of it: the peaks, the memory that was held over time, and the first event that found none.

Must not know: how it is shown, or any trace format: whatever tells who lived when and how large it was will do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from tensormem import mr
from tensormem.errors import InvalidArgument
from tensormem.streams import Stream
from tensormem.trace.lifetimes import Lifetime, check_lifetimes, peak_load
from tensormem.trace.plan_file import load_plan
from tensormem.trace.planning import plan
from tensormem.trace.stacks import StackParts, build_stack
from tensormem.trace.trace import Trace
from tensormem.trace.workload import workload_of_one, workloads_by_space
from tensormem.units import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tensormem.trace.planning import Plan

__all__ = ["ReplayFailure", "ReplayReport", "ReplaySample", "replay", "replay_spaces"]

_MOST_SAMPLES = 500


class ReplaySample(NamedTuple):
    """What was live and what was held of the leaf after `event` events.

    >>> ReplaySample(10, 600, 1000).fragmentation
    0.4
    """

    event: int
    live_bytes: int
    reserved_bytes: int

    @property
    def fragmentation(self) -> float:
        """The part of what is held that nothing lives in."""
        return 1.0 - self.live_bytes / self.reserved_bytes if self.reserved_bytes else 0.0


class ReplayFailure(NamedTuple):
    """The first event that could not be served: which one, whose, how much it wanted, and why not."""

    event: int
    name: str
    nbytes: int
    error: str
    why: str

    def __str__(self) -> str:
        return f"event {self.event}, block {self.name!r} of {format_size(self.nbytes)}: {self.why}"


@dataclass(frozen=True)
class ReplayReport:
    """How a stack did on a trace.

    >>> report = replay([Lifetime("a", 0, 2, 1000), Lifetime("b", 1, 3, 24)], "pool", capacity="1KiB")
    >>> report.fits, report.failure.name
    (False, 'b')
    """

    stack: str
    event_count: int
    events_done: int
    peak_live: int
    peak_reserved: int
    failure: ReplayFailure | None
    samples: tuple[ReplaySample, ...]
    counters: dict[str, int] = field(default_factory=dict)
    space: str = ""
    """Where its blocks were; "" when the lifetimes do not say."""

    @property
    def fits(self) -> bool:
        """Whether every event was served."""
        return self.failure is None

    @property
    def fragmentation(self) -> float:
        """The part of the most that was held that never was needed at once."""
        return 1.0 - self.peak_live / self.peak_reserved if self.peak_reserved else 0.0

    def as_json(self) -> dict[str, object]:
        """As values that JSON knows."""
        failure = None if self.failure is None else self.failure._asdict()
        return {
            "stack": self.stack,
            "space": self.space,
            "fits": self.fits,
            "events": self.event_count,
            "events_done": self.events_done,
            "peak_live_bytes": self.peak_live,
            "peak_reserved_bytes": self.peak_reserved,
            "fragmentation": self.fragmentation,
            "first_failure": failure,
            "counters": self.counters,
            "samples": [list(sample) for sample in self.samples],
        }


class _Step(NamedTuple):
    time: int
    starts: bool  # what ends at a moment goes before what begins
    block: int


def replay(
    trace: Trace | Iterable[Lifetime],
    stack: str = "pool",
    *,
    capacity: int | str | None = None,
    real: bool = False,
    space: str | None = None,
    streams: Sequence[int] | None = None,
    time_limit: float = 5.0,
    progress: Callable[[float], object] | None = None,
) -> ReplayReport:
    """Run the blocks of a trace through a stack such as "pool" or "limiting(24GiB)/binning", in order.

    The leaf has addresses only, so that any capacity can be asked about anywhere; with `real` it is main memory.
    `streams` has a number per block: those with the same number are allocated and given back on the same stream; a
    `Trace` brings its own. A `Trace` of several spaces needs `space`, the one to judge; `replay_spaces` judges all of
    them. The replay ends at the first block that there is no memory for. "planned" makes a plan
    first, for at most `time_limit` seconds, and "planned(plan.json)" takes one from a file. `progress` is told a few
    hundred times which share is done.

    >>> replay([Lifetime("a", 0, 2, 4096), Lifetime("b", 1, 3, 4096)], "planned").peak_reserved
    8192
    """
    named = space or ""
    if isinstance(trace, Trace):
        named, (trace, streams) = workload_of_one(trace, space)
    blocks = [Lifetime(*each) for each in trace]
    check_lifetimes(blocks)
    if streams is not None and len(streams) != len(blocks):
        raise InvalidArgument(f"there are {len(blocks)} blocks and {len(streams)} streams")
    limit = None if capacity is None else parse_size(capacity)
    leaf = _leaf(limit, real)

    def make_plan(path: str | None) -> Plan:
        return plan(blocks, limit, time_limit, 256) if path is None else load_plan(path)

    largest = max((block.size for block in blocks), default=1)
    parts = StackParts(leaf, largest, peak_load(blocks), make_plan, limit, real)
    try:
        made = build_stack(stack, parts)
    except MemoryError as error:
        # The stack itself does not fit: the first block is as far as it would come.
        first = min(blocks, key=lambda block: block.lower)
        failure = ReplayFailure(0, first.id, first.size, type(error).__name__, str(error))
        return ReplayReport(stack, 2 * len(blocks), 0, 0, 0, failure, (), space=named)
    return replace(_Replay(stack, blocks, made, parts, streams).run(progress), space=named)


def replay_spaces(
    trace: Trace,
    stack: str = "pool",
    *,
    capacity: int | str | None = None,
    real: bool = False,
    time_limit: float = 5.0,
    progress: Callable[[float], object] | None = None,
) -> dict[str, ReplayReport]:
    """Replay every space of a trace by itself, as `replay` does: each has `capacity`, and its own verdict.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> mr = tm.mr.HostMemoryResource()
    >>> with tm.trace(path):
    ...     mr.deallocate(mr.allocate(1000))
    >>> {space: report.fits for space, report in replay_spaces(tm.trace.open(path), capacity="4MiB").items()}
    {'main': True}
    """
    return {
        space: replay(
            blocks.lifetimes,
            stack,
            capacity=capacity,
            real=real,
            space=space,
            streams=blocks.streams,
            time_limit=time_limit,
            progress=progress,
        )
        for space, blocks in workloads_by_space(trace).items()
    }


def _leaf(limit: int | None, real: bool) -> mr.DeviceMemoryResource:
    if not real:
        return mr.AbstractMemoryResource(limit)
    host = mr.HostMemoryResource()
    return host if limit is None else mr.LimitingResourceAdaptor(host, limit)


class _Replay:
    """One run: the blocks that are out, the peaks so far, and the samples."""

    def __init__(
        self,
        stack: str,
        blocks: Sequence[Lifetime],
        made: mr.DeviceMemoryResource,
        parts: StackParts,
        streams: Sequence[int] | None,
    ) -> None:
        self.stack, self.blocks, self.made, self.parts = stack, blocks, made, parts
        self.opened: dict[int, Stream] = {}
        self.streams = [self._stream(number) for number in streams or [0] * len(blocks)]
        self.elastic = next((each for each in parts.made if isinstance(each, mr.ElasticMemoryResource)), None)
        self.out: dict[int, mr.DeviceBlock] = {}
        self.live = self.peak_live = self.peak_reserved = 0
        self.samples: list[ReplaySample] = []

    def run(self, progress: Callable[[float], object] | None) -> ReplayReport:
        steps = [_Step(block.lower, True, number) for number, block in enumerate(self.blocks)]
        steps += [_Step(block.upper, False, number) for number, block in enumerate(self.blocks)]
        steps.sort()
        every = max(1, len(steps) // _MOST_SAMPLES)
        done, failure = 0, None
        for done, step in enumerate(steps, 1):
            if step.starts:
                failure = self._take(done - 1, step.block)
            else:
                self._give_back(step.block)
            reserved = self._reserved()
            self.peak_reserved = max(self.peak_reserved, reserved)
            if failure is not None or done % every == 0 or done == len(steps):
                self.samples.append(ReplaySample(done, self.live, reserved))
                if progress is not None:
                    progress(done / len(steps))
            if failure is not None:
                done -= 1
                break
        counters = self._counters()
        self._close()
        return ReplayReport(
            self.stack,
            len(steps),
            done,
            self.peak_live,
            self.peak_reserved,
            failure,
            tuple(self.samples),
            counters,
        )

    def _stream(self, number: int) -> Stream | None:
        if number and number not in self.opened:
            self.opened[number] = Stream(self.made.driver)
        return self.opened.get(number)

    def _close(self) -> None:
        for number in list(self.out):
            self._give_back(number)
        for stream in self.opened.values():
            stream.close()

    def _take(self, event: int, number: int) -> ReplayFailure | None:
        block = self.blocks[number]
        try:
            self.out[number] = self.made.allocate(block.size, self.streams[number], tag=None)
        except MemoryError as error:
            return ReplayFailure(event, block.id, block.size, type(error).__name__, str(error))
        self.live += block.size
        self.peak_live = max(self.peak_live, self.live)
        return None

    def _give_back(self, number: int) -> None:
        self.made.deallocate(self.out.pop(number), self.streams[number])
        self.live -= self.blocks[number].size

    def _reserved(self) -> int:
        if self.elastic is not None:
            return self.elastic.physical_bytes
        return self.parts.leaf.bytes_outstanding

    def _counters(self) -> dict[str, int]:
        planned = next((each for each in self.parts.made if isinstance(each, mr.PlannedMemoryResource)), None)
        return {} if planned is None else {"planned": planned.planned, "fallbacks": planned.fallbacks}
