"""Question: how long does importing take?"""

import subprocess
import sys
import tempfile
from collections.abc import Callable

from harness import Metric, Question, Row, summarise

REPEATS = 15
# tensormem loads its parts when they are first named: both the package alone and all of it are shown.
IMPORTS = {
    "tensormem": "import tensormem",
    "tensormem, all of it": "import tensormem as tm; [getattr(tm, name) for name in tm.__all__]",
    "numpy": "import numpy",
    "pyarrow": "import pyarrow",
    "torch": "import torch",
}
TIMED = """
import time
start = time.perf_counter_ns()
{statement}
print(time.perf_counter_ns() - start)
"""


def milliseconds(statement: str, folder: str) -> float:
    code = TIMED.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout) / 1e6


def measure(say: Callable[[str], None]) -> list[Row]:
    samples: dict[str, list[float]] = {name: [] for name in IMPORTS}
    with tempfile.TemporaryDirectory() as folder:
        for statement in IMPORTS.values():
            milliseconds(statement, folder)  # so that bytecode and file caches are warm
        for turn in range(REPEATS):
            say(f"turn {turn + 1} of {REPEATS}")
            for name, statement in IMPORTS.items():
                samples[name].append(milliseconds(statement, folder))
    return [Row(name, None, {"ms": summarise(taken).median_ns}) for name, taken in samples.items()]


QUESTION = Question(
    name="import_time",
    title="Time to import",
    asks="A fresh interpreter that imports one module, timed from inside. Files are cached.",
    case_label="",
    metrics=[Metric("ms", "import (ms)")],
    measure=measure,
    packages=("tensormem", "numpy", "pyarrow", "torch"),
)
