"""Question: what does it cost to reserve 128 GiB of addresses and to release them, and does it leak?"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import tensormem as tm
from harness import Metric, Question, Row
from native_program import figures

SIZE = 128 << 30
ROUNDS = 5
CYCLES = 200_000  # a million in all


def resident_kib() -> int:
    text = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Rss:"))


def cycle(vmm: tm.VirtualMemoryManager, times: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(times):
        vmm.release(vmm.reserve(SIZE))
    return (time.perf_counter_ns() - start) / times


def measure(say: Callable[[str], None]) -> list[Row]:
    ours, bare = list[float](), list[float]()
    with tm.VirtualMemoryManager() as vmm:
        cycle(vmm, 1000)
        before = resident_kib()
        for turn in range(ROUNDS):
            say(f"{(turn + 1) * CYCLES:,} cycles")
            bare += [f["ns"] for f in figures("virtual_memory") if f["step"].startswith("reserve")]
            ours.append(cycle(vmm, CYCLES))
        grown = max(resident_kib() - before, 0)
    return [
        Row("tensormem", None, {"ns": statistics.median(ours), "grown": grown}),
        Row("mmap + munmap, in C", None, {"ns": statistics.median(bare), "grown": 0}),
    ]


QUESTION = Question(
    name="address_ranges",
    title="Reserving and releasing 128 GiB of addresses, a million times",
    asks="`reserve` and `release` of 128 GiB from Python, aligned to 2 MiB, against bare `mmap` and `munmap` with no "
    "alignment. The second table is what resident memory grew by after a million cycles.",
    case_label="",
    metrics=[Metric("ns", "time per cycle (ns)"), Metric("grown", "resident growth (KiB)", logarithmic=False)],
    measure=measure,
    packages=("tensormem",),
)
