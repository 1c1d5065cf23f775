"""Question: do threads that allocate at the same time get in one another's way? Measured in C++, by native/bench."""

from collections.abc import Callable

from harness import Metric, Question, Row
from native_program import figures


def measure(say: Callable[[str], None]) -> list[Row]:
    say("native program")
    return [Row(each["resource"], each["threads"], {"mpairs": each["mpairs"]}) for each in figures("arena_threads")]


QUESTION = Question(
    name="arena_threads",
    title="Threads (C++): allocate and deallocate at the same time",
    asks="Millions of pairs of deallocate and allocate per second, all threads together, each with eight live blocks "
    "of its own. Higher is better; the machine has two cores.",
    case_label="threads",
    metrics=[Metric("mpairs", "million pairs per second", logarithmic=False)],
    measure=measure,
    ours="tensormem arena",
    packages=("tensormem",),
)
