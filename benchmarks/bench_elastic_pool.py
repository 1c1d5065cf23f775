"""Question: what do pages of an elastic pool cost from Python, against the bare system calls in a C++ loop?"""

import ctypes
import statistics
import time
from collections.abc import Callable

import tensormem as tm
from harness import Metric, Question, Row
from native_program import figures

PAGE = 2 << 20
RUNS = (1, 16, 512)
STEPS = ("populate", "recycle")


def per_page(times: int, pages: int, work: Callable[[], object], after: Callable[[], object]) -> float:
    samples = []
    for _ in range(times):
        start = time.perf_counter_ns()
        work()
        samples.append((time.perf_counter_ns() - start) / pages)
        after()
    return statistics.median(samples)


def populate(pages: int) -> float:
    """Fresh memory for a run of pages, in one call."""
    with tm.VirtualMemoryPool(2 * RUNS[-1] * PAGE, release_threshold=0) as pool:
        return per_page(
            7 if pages == RUNS[-1] else 41,
            pages,
            lambda: pool.allocate(0, pages * PAGE),
            lambda: pool.deallocate(0, pages * PAGE),
        )


def recycle(pages: int) -> float:
    """A run of pages taken and given back, from the cache and to it."""
    with tm.VirtualMemoryPool(2 * RUNS[-1] * PAGE, release_threshold=2 * RUNS[-1] * PAGE) as pool:
        ctypes.memset(pool.allocate(0, pages * PAGE), 1, pages * PAGE)
        pool.deallocate(0, pages * PAGE)

        def work() -> None:
            pool.allocate(0, pages * PAGE)
            pool.deallocate(0, pages * PAGE)

        return per_page(201, pages, work, lambda: None)


def move() -> float:
    """Whole pages that compaction moves down by remapping, contents and all."""
    samples = []
    for _ in range(15):
        with tm.VirtualMemoryPool("8GiB") as pool:
            blocks = [pool.allocate(size=16 * PAGE, movable=True) for _ in range(32)]
            for block in blocks:
                ctypes.memset(block.address, 1, block.size)
            for block in blocks[::2]:
                pool.deallocate(block)
            report = pool.compact()
            samples.append(report.seconds * 1e9 / report.pages_remapped)
            del blocks, block
    return statistics.median(samples)


def measure(say: Callable[[str], None]) -> list[Row]:
    say("the bare calls")
    raw = {(figure["step"], figure["pages"]): figure["ns"] for figure in figures("populate")}
    rows = []
    for pages in RUNS:
        say(f"{pages} pages")
        rows.append(Row("tensormem", pages, {"populate": populate(pages), "recycle": recycle(pages)}))
        rows.append(Row("C++ loop", pages, {step: raw[step, pages] for step in STEPS}))
    say("moving")
    rows.append(Row("tensormem", 1, {"move": move()}))
    rows.append(Row("memcpy", 1, {"move": raw["memcpy", 1]}))
    return rows


QUESTION = Question(
    name="elastic_pool",
    title="Elastic pool: pages taken, given back and moved",
    asks="Time per page of 2 MiB. Populate: fresh memory in one call. Recycle: mapped and unmapped, from the cache. "
    "Move: a live page that compaction puts elsewhere, against a copy of its bytes.",
    case_label="pages in one call",
    metrics=[
        Metric("populate", "populate (ns per page)"),
        Metric("recycle", "map + access + unmap (ns per page)"),
        Metric("move", "move (ns per page)"),
    ],
    measure=measure,
    packages=("tensormem",),
)
