"""Question: what do map + access and unmap of recycled 2 MiB pages cost from Python, against the bare system calls?"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable

import tensormem as tm
from harness import Metric, Question, Row
from native_program import figures

PAGE = 2 << 20
PAGES = 64
ROUNDS = 5
REPEATS = 9
BARE = "the system calls, in C"


def ours(run: int) -> tuple[float, float]:
    """Nanoseconds per page to map with access, and to unmap, `run` pages in one call."""
    with tm.VirtualMemoryManager() as vmm:
        va = vmm.reserve(PAGES * PAGE)
        places = range(0, PAGES * PAGE, run * PAGE)
        pages = [vmm.alloc_physical(run * PAGE, near=va.base + place) for place in places]
        mapping, unmapping = list[float](), list[float]()
        for _ in range(REPEATS):
            start = time.perf_counter_ns()
            for place, page in zip(places, pages, strict=True):
                vmm.map(va, page, place, access="read_write")
            mapped = time.perf_counter_ns()
            for place in places:
                vmm.unmap(va, place, run * PAGE)
            unmapping.append((time.perf_counter_ns() - mapped) / PAGES)
            mapping.append((mapped - start) / PAGES)
        return statistics.median(mapping), statistics.median(unmapping)


def measure(say: Callable[[str], None]) -> list[Row]:
    samples: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for turn in range(ROUNDS):
        say(f"turn {turn + 1} of {ROUNDS}")
        for figure in figures("virtual_memory"):
            samples[BARE, figure["run"], figure["step"]].append(figure["ns"])
        for run in (1, 16):
            mapping, unmapping = ours(run)
            samples["tensormem", run, "map + access"].append(mapping)
            samples["tensormem", run, "unmap"].append(unmapping)
    median = {key: statistics.median(taken) for key, taken in samples.items()}
    return [
        Row(peer, run, {"map_ns": median[peer, run, "map + access"], "unmap_ns": median[peer, run, "unmap"]})
        for run in (1, 16)
        for peer in ("tensormem", BARE)
    ]


QUESTION = Question(
    name="virtual_memory",
    title="Virtual memory: recycled 2 MiB pages come and go",
    asks="Pages that exist already are mapped with read and write access, and unmapped again, one or sixteen of them "
    "in one call; times are per page. Ours is called from Python with every check and both books kept; the peer is a "
    "loop in C of the same `mmap` and `mprotect` calls on the same kind of pages, and checks nothing. They take turns.",
    case_label="pages in one call",
    metrics=[Metric("map_ns", "map + access (ns per page)"), Metric("unmap_ns", "unmap (ns per page)")],
    measure=measure,
    packages=("tensormem",),
)
