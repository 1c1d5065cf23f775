"""Question: how fast and how tight is the offset allocator? Measured in C++, by native/bench."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from harness import Metric, Question, Row

PROGRAM = Path(__file__).resolve().parent.parent / "build-bench" / "native" / "bench" / "bench_offset_allocator"
OURS = "ours"


def measure(say: Callable[[str], None]) -> list[Row]:
    say("native program")
    printed = subprocess.run([PROGRAM], stdout=subprocess.PIPE, text=True, check=True).stdout
    figures = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [
        Row(
            "tensormem" if figure["allocator"] == OURS else figure["allocator"],
            figure["live"],
            {"ns": figure["ns"], "packing": figure["packing"]},
        )
        for figure in figures
    ]


QUESTION = Question(
    name="offset_allocator",
    title="Offset allocator (C++): free and allocate at random",
    asks="With so many blocks live: free a random one, then allocate a log-uniform size from 256 B to 1 MiB. "
    "Packing is the high-water mark of the space over the peak of the live bytes: 1 is perfect.",
    case_label="live blocks",
    metrics=[
        Metric("ns", "free + allocate (ns)"),
        Metric("packing", "high water / peak live", logarithmic=False),
    ],
    measure=measure,
    packages=("tensormem",),
)
