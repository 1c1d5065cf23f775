"""Measures callables and statements against one another.

Owns: how time is taken. Peers of one question are measured in the same run, in turns (a slow moment of the machine hits
all of them), each turn long enough for the clock; the figure is the median of the turns, with the fastest and slowest
kept beside it. Must not know: what is measured, or how results are shown (report.py).
"""

import statistics
import time
import timeit
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

REPEATS = 15
TURN_NS = 20_000_000


@dataclass(frozen=True)
class Peer:
    """One way of doing the work. A statement costs no function call: prefer it for work of nanoseconds."""

    name: str
    work: str | Callable[[], object]
    names: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Timing:
    median_ns: float
    fastest_ns: float
    slowest_ns: float
    repeats: int


@dataclass(frozen=True)
class Metric:
    key: str
    label: str  # with its unit, for tables and axes
    logarithmic: bool = True


@dataclass(frozen=True)
class Row:
    """One figure of one peer; `case` is what varies (a size, a number of live blocks) or None."""

    peer: str
    case: int | None
    values: Mapping[str, float]


@dataclass(frozen=True)
class Question:
    name: str
    title: str
    asks: str
    case_label: str
    metrics: Sequence[Metric]
    measure: Callable[[Callable[[str], None]], list[Row]]  # given a function that says what is being done
    ours: str = "tensormem"
    pairs: Sequence[tuple[str, str]] = ()  # where rows are different work: which of ours stands against which peer
    packages: Sequence[str] = ()  # whose versions are noted beside the figures


NANOSECONDS = Metric("ns", "time per call (ns)")


def summarise(samples: Sequence[float]) -> Timing:
    return Timing(statistics.median(samples), min(samples), max(samples), len(samples))


def calls_per_turn(timer: timeit.Timer, turn_ns: int) -> int:
    """How often to repeat the work so that one turn is long enough. Warms it up on the way."""
    calls = 1
    while True:
        taken = timer.timeit(calls)
        if taken >= turn_ns / 2:
            return calls
        calls = max(calls * 2, min(calls * 100, int(calls * turn_ns / max(taken, 1))))


def time_peers(
    peers: Iterable[Peer],
    *,
    repeats: int = REPEATS,
    turn_ns: int = TURN_NS,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, Timing]:
    """Nanoseconds per call of every peer, measured in turns."""
    timers = {peer.name: timeit.Timer(peer.work, timer=clock, globals=dict(peer.names)) for peer in peers}
    calls = {name: calls_per_turn(timer, turn_ns) for name, timer in timers.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for turn in range(repeats):
        order = list(timers)
        first = turn % len(order)
        for name in order[first:] + order[:first]:
            samples[name].append(timers[name].timeit(calls[name]) / calls[name])
    return {name: summarise(taken) for name, taken in _steadied(samples).items()}


def _steadied(samples: Mapping[str, list[float]]) -> Mapping[str, list[float]]:
    """A turn in which the machine was slow was so for all peers: each is taken at the machine's usual speed.

    What peers are to one another within a turn stays as it was measured.
    """
    if len(samples) < 2:
        return samples
    usual = {name: statistics.median(taken) for name, taken in samples.items()}
    turns = zip(*([each / usual[name] for each in taken] for name, taken in samples.items()), strict=True)
    slowness = [statistics.median(turn) for turn in turns]
    return {name: [each / slow for each, slow in zip(taken, slowness, strict=True)] for name, taken in samples.items()}


def timing_row(peer: str, case: int | None, timing: Timing) -> Row:
    values = {"ns": timing.median_ns, "fastest_ns": timing.fastest_ns, "slowest_ns": timing.slowest_ns}
    return Row(peer, case, values)
