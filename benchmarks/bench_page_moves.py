"""Question: what does it cost to move a live 2 MiB page to another address, against copying it?"""

import statistics
import time
from collections.abc import Callable

import tensormem as tm
from harness import NANOSECONDS, Question, Row
from native_program import figures

PAGE = 2 << 20
ROUNDS = 5
MOVES = 64
REPEATS = 21


def moving() -> float:
    """Nanoseconds per move of a page that is full of data, there and back."""
    with tm.VirtualMemoryManager() as vmm:
        va = vmm.reserve(2 * PAGE)
        mapping = vmm.map(va, vmm.alloc_physical(PAGE), 0, access="read_write")
        vmm.driver.fill(mapping.address, 0x5A, 1, (PAGE, 1, 1))
        samples = []
        for _ in range(REPEATS):
            start = time.perf_counter_ns()
            for step in range(MOVES):
                mapping = vmm.move(mapping, 0 if step % 2 else PAGE)
            samples.append((time.perf_counter_ns() - start) / MOVES)
        return statistics.median(samples)


def measure(say: Callable[[str], None]) -> list[Row]:
    ours, copies = list[float](), list[float]()
    for turn in range(ROUNDS):
        say(f"turn {turn + 1} of {ROUNDS}")
        found = {figure["step"]: figure["ns"] for figure in figures("virtual_memory") if figure["run"] == 1}
        copies.append(found["memcpy"])
        ours.append(moving())
    return [
        Row("tensormem", None, {"ns": statistics.median(ours)}),
        Row("memcpy of 2 MiB", None, {"ns": statistics.median(copies)}),
    ]


QUESTION = Question(
    name="page_moves",
    title="Moving a live 2 MiB page",
    asks="`VirtualMemoryManager.move` gives a page full of data another address by remapping it; the peer copies "
    "its bytes once, warm, in C. Contents, access and aliases are kept; no byte is copied.",
    case_label="",
    metrics=[NANOSECONDS],
    measure=measure,
    packages=("tensormem",),
)
