"""Question: how low and how fast are static plans of known lifetimes?

The peers are written here: greedy by size into the tightest gap, as planners of inference runtimes do it, and greedy by
the time of the first use. MiniMalloc, an exact solver, took 0.9 to 8.1 s for each of A to H and 33.6 s in all on a
machine like ours (google/minimalloc, benchmarks/challenging); it is quoted, not run.
"""

import bisect
import time
from collections.abc import Callable

from harness import Metric, Question, Row
from tensormem.testing.workloads import workload_files
from tensormem.trace import Lifetime, peak_load, plan, read_lifetimes

CAPACITY = 1_048_576
MOST_FOR_PEERS = 10_000  # the peers look at every pair


def generated() -> list[Lifetime]:
    """Layers that keep their results until they come back for them, in place of the real instances."""
    return [
        Lifetime(str(n), n, (800 - n) if n % 3 else n + 2, (7919 * n) % (8 << 20) // 1024 * 1024 + 1024)
        for n in range(1, 400)
    ]


def instances(say: Callable[[str], None]) -> list[tuple[str, list[Lifetime], int | None]]:
    hard = [(file.name[0], read_lifetimes(file), CAPACITY) for file in workload_files("minimalloc/*.csv")]
    real = [
        (file.stem, read_lifetimes(file), None)
        for folder in ("somas", "torch")
        for file in workload_files(f"{folder}/*.csv")
    ]
    if not hard and not real:
        say("NO INSTANCES beside the project: a generated one stands in")
        return [("generated", generated(), None)]
    return [*hard, *real]


def greedy(lifetimes: list[Lifetime], key: Callable[[Lifetime], tuple[int, ...]]) -> int:
    """Each block into the tightest gap between those that live when it does."""
    placed: list[tuple[int, Lifetime]] = []  # by offset
    height = 0
    for block in sorted(lifetimes, key=key):
        at, best, end = None, 0, 0
        for offset, other in placed:
            if not block.overlaps(other):
                continue
            gap = offset - end
            if gap >= block.size and (at is None or gap < best):
                at, best = end, gap
            end = max(end, offset + other.size)
        place = end if at is None else at
        bisect.insort(placed, (place, block))
        height = max(height, place + block.size)
    return height


def by_size(lifetimes: list[Lifetime], capacity: int | None) -> int:
    return greedy(lifetimes, lambda block: (-block.size, block.lower))


def by_time(lifetimes: list[Lifetime], capacity: int | None) -> int:
    return greedy(lifetimes, lambda block: (block.lower, -block.size))


def ours(lifetimes: list[Lifetime], capacity: int | None) -> int:
    return plan(lifetimes, capacity, time_limit=60.0 if capacity else 5.0).height


def measure(say: Callable[[str], None]) -> list[Row]:
    rows = []
    for case, (name, lifetimes, capacity) in enumerate(instances(say), 1):
        least = capacity or peak_load(lifetimes)
        for peer, make in (("tensormem", ours), ("greedy by size", by_size), ("greedy by time", by_time)):
            if peer != "tensormem" and len(lifetimes) > MOST_FOR_PEERS:
                continue
            say(f"{name}: {peer}")
            start = time.perf_counter()
            height = make(lifetimes, capacity)
            rows.append(Row(peer, case, {"height": height / least, "seconds": time.perf_counter() - start}))
    return rows


QUESTION = Question(
    name="plans",
    title="Static plans of known lifetimes: height and time",
    asks="Offsets for blocks whose lives are known. Height over the capacity (the hard instances A to H, which are "
    "known to fit) or over the most that lives at once (the others): 1 is perfect. Planning stops at 1, or after 5 s "
    "for the others. The cases, in order: A to H, pangu_2.6B, resnet50, gpt_medium_128_training, "
    "gpt_medium_512_inference, gpt_medium_512_training. MiniMalloc is quoted with 33.6 s for A to H together "
    "(google/minimalloc).",
    case_label="instance",
    metrics=[
        Metric("height", "height / capacity or bound", logarithmic=False),
        Metric("seconds", "time (s)"),
    ],
    measure=measure,
    packages=("tensormem",),
)
