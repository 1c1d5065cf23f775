"""Question: what does our way to a GPU's driver cost, against cuda-core's, when the driver itself is the same?"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from harness import Metric, Question, Row
from tensormem.testing.gpus import simulated_environment

PROGRAM = Path(__file__).resolve().parent / "gpu_calls.py"
BLOCK, PAGE = "cuda-core, a block", "cuda-core, 2 MiB mapped"
NAMES = {
    ("tensormem", "stream-ordered"): "tensormem, a block of GpuAsyncMemoryResource",
    ("tensormem", "plain"): "tensormem, a block of GpuMemoryResource",
    ("tensormem", "pool"): "tensormem, a block of a pool over the first",
    ("tensormem", "mapped"): "tensormem, 2 MiB mapped",
    ("cuda-core", "stream-ordered"): BLOCK,
    ("cuda-core", "mapped"): PAGE,
}
FIGURES = ("own_ns", "ns", "leaked")
PROCESSES = 5  # where memory happens to lie in one of them matters as much as what is measured


def measure(say: Callable[[str], None]) -> list[Row]:
    taken: dict[tuple[str, str], list[dict[str, float]]] = {}
    for process in range(PROCESSES):
        say(f"in a process with a simulated GPU, {process + 1} of {PROCESSES}")
        for row in one_process():
            taken.setdefault((row["peer"], row["what"]), []).append(row)
    return [
        Row(name, None, {key: median(row[key] for row in taken[measured]) for key in FIGURES})
        for measured, name in NAMES.items()
    ]


def one_process() -> Any:
    environment = {**os.environ, **simulated_environment(1, "4GiB")}
    done = subprocess.run([sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


QUESTION = Question(
    name="gpu_overhead",
    title="GPU memory: what a library adds to the driver's calls",
    asks="Everything runs on the simulated GPU, which stops a clock inside its calls, the way to the clock included: "
    "the first table is the time of the library alone, the second that of the library and the simulation. Neither "
    "says anything about a GPU. A block is 1 MiB taken on a stream and given back; cuda-core's is of its "
    "`DeviceMemoryResource`. Mapped is: addresses reserved, 2 MiB created, mapped and opened, and all given back, "
    "by our `VirtualMemoryManager` and by its `VirtualMemoryResource`. The third table counts the physical allocations "
    "that stay behind after each call.",
    case_label="",
    metrics=[
        Metric("own_ns", "time of the library (ns per call)"),
        Metric("ns", "time with the simulated driver (ns per call)"),
        Metric("leaked", "physical allocations left behind per call", logarithmic=False),
    ],
    measure=measure,
    pairs=(
        (NAMES["tensormem", "stream-ordered"], BLOCK),
        (NAMES["tensormem", "plain"], BLOCK),
        (NAMES["tensormem", "pool"], BLOCK),
        (NAMES["tensormem", "mapped"], PAGE),
    ),
    packages=("tensormem", "cuda-core", "cuda-bindings"),
)
