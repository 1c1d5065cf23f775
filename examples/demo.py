"""The main job, end to end: record a program, ask what it did, ask what else would have fit, and look at it.

Run it with `make demo`. Every step is a command that you could type, shown before it runs. What it makes is in `demo/`:
the trace, a picture of the replays, and a page to open in a browser. Ends with 1 if a step fails.
"""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

WORKLOAD = Path(__file__).resolve().parent / "demo_workload.py"
ORDINARY = Path(__file__).resolve().parent / "see" / "pictures.py"
STACKS = ("pool", "binning", "elastic")


class Step(NamedTuple):
    """One command: what it is for, its words, and the exit codes that are fine."""

    title: str
    words: tuple[str, ...]
    fine: tuple[int, ...] = (0,)


def steps(folder: str, requests: int, budget: str, frames: int) -> list[Step]:
    trace, page = f"{folder}/run.tmt", f"{folder}/report.html"
    program = ("python", str(WORKLOAD), "--requests", str(requests), "--budget", budget, "--frames", str(frames))
    stacks = tuple(word for stack in STACKS for word in ("-r", stack))
    return [
        Step(
            "Record a program",
            ("record", "--stacks", "--malloc", "off", "--no-numpy", "-f", "-o", trace, "--", *program),
        ),
        # 1 would say that something was never given back, which is a finding and no failure of the demo.
        Step("What did it do with memory?", ("stats", "-q", trace), (0, 1)),
        Step(
            "What would other stacks have needed?",
            ("replay", trace, "--real", *stacks, "-f", "-o", f"{folder}/replay.svg"),
        ),
        Step("A page to look at it", ("report", trace, "-f", "-o", page)),
        *ordinary_steps(folder),
    ]


def ordinary_steps(folder: str) -> list[Step]:
    """The same for a program that knows nothing of tensormem, where NumPy is here to run it."""
    if find_spec("numpy") is None:
        return []
    trace = f"{folder}/pictures.tmt"
    return [
        Step(
            "Record a NumPy program that knows nothing of tensormem",
            ("record", "--stacks", "-f", "-o", trace, "--", "python", str(ORDINARY)),
        ),
        Step("Which lines hold its memory?", ("stats", "-n", "3", trace)),
        Step("A page of it", ("report", trace, "-f", "-o", f"{folder}/pictures.html")),
    ]


def shown(words: Sequence[str]) -> str:
    """The command as one would type it here."""
    here = Path.cwd()
    short = [str(Path(word).relative_to(here)) if word.startswith(f"{here}/") else word for word in words]
    return shlex.join(["tensormem", *short])


def run(step: Step) -> bool:
    print(f"\n== {step.title}\n$ {shown(step.words)}", flush=True)
    words = [sys.executable if word == "python" else word for word in step.words]
    code = subprocess.run([sys.executable, "-m", "tensormem", *words]).returncode
    if code not in step.fine:
        print(f"NOT DONE: this ended with {code}", flush=True)
    return code in step.fine


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Record, ask, replay and look, with a real program.")
    parser.add_argument("--folder", default="demo", help="where everything goes (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=1200, help="for the models (default: %(default)s)")
    parser.add_argument("--budget", default="512MiB", help="memory for the models (default: %(default)s)")
    parser.add_argument("--frames", type=int, default=60, help="of the camera (default: %(default)s)")
    given = parser.parse_args(arguments)
    Path(given.folder).mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    if not all(run(step) for step in steps(given.folder, given.requests, given.budget, given.frames)):
        return 1
    page = Path(given.folder, "report.html").resolve()
    print(f"\nAll of it took {time.perf_counter() - started:.0f} s. Open the page in a browser: {page.as_uri()}")
    print(f"Next: tensormem view {given.folder}/run.tmt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
