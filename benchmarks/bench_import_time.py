"""Question: how long does `import` take, in a fresh interpreter?"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from harness import REPEATS, Metric, Question, Row, summarise

BARE = "pass"
MODULES = ("tensormem", "numpy", "pyarrow", "torch")


def seconds_to_run(statement: str, folder: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], cwd=folder, check=True)
    return time.perf_counter() - start


def measure(say: Callable[[str], None]) -> list[Row]:
    """The whole run of an interpreter, less that of one which imports nothing; all of them in turns."""
    statements = {BARE: BARE, **{module: f"import {module}" for module in MODULES}}
    samples: dict[str, list[float]] = {name: [] for name in statements}
    with tempfile.TemporaryDirectory() as folder:
        for statement in statements.values():
            seconds_to_run(statement, folder)  # so that bytecode and file caches are warm
        for turn in range(REPEATS):
            say(f"turn {turn + 1} of {REPEATS}")
            for name, statement in statements.items():
                samples[name].append(seconds_to_run(statement, folder) * 1e3)
    bare = summarise(samples.pop(BARE)).median_ns
    return [Row(name, None, {"ms": summarise(taken).median_ns - bare}) for name, taken in samples.items()]


QUESTION = Question(
    name="import_time",
    title="Time to import",
    asks="A fresh interpreter that imports one module, less a fresh interpreter that imports none. Files are cached.",
    case_label="",
    metrics=[Metric("ms", "import (ms)")],
    measure=measure,
    packages=MODULES,
)
