"""Question: how fast and how tight is the offset allocator? Measured in C++, by native/bench."""

from collections.abc import Callable

from harness import Metric, Question, Row
from native_program import figures

OURS = "ours"


def measure(say: Callable[[str], None]) -> list[Row]:
    say("native program")
    return [
        Row(
            "tensormem" if figure["allocator"] == OURS else figure["allocator"],
            figure["live"],
            {"ns": figure["ns"], "packing": figure["packing"]},
        )
        for figure in figures("offset_allocator")
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
