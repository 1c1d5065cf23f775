"""Question: what does our pool add to a GPU's stream-ordered allocator? Measured in C++, by native/bench."""

from collections.abc import Callable

from harness import Metric, Question, Row
from native_program import figures


def measure(say: Callable[[str], None]) -> list[Row]:
    say("native program")
    return [Row(each["resource"], each["live"], {"ns": each["ns"]}) for each in figures("gpu_pool")]


QUESTION = Question(
    name="gpu_pool",
    title="GPU pool (C++): what it adds",
    asks="One block is given back on a stream of the simulated GPU and one of its size is taken, with so many blocks "
    "of as many sizes out. The pool does not ask the driver, so its figure is all that it adds; the other one is the "
    "simulated driver's with our checks, and says nothing about a GPU.",
    case_label="live blocks",
    metrics=[Metric("ns", "time per allocate and deallocate (ns)")],
    measure=measure,
    ours="tensormem pool",
    packages=("tensormem",),
)
