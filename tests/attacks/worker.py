"""Owns: a process that runs cases of one suite. It imports once, then forks a child for every batch that it is told.

    python -m attacks.worker SUITE FOLDER    reads "FIRST COUNT" lines, answers each with the wait status of the child

The child says in a cell what it does and appends findings and totals to a file, so that nothing it says is lost with it
and no descriptor of it is in the way. Must not know: what to run next.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from random import Random
from typing import Any

from attacks.cell import Cell
from attacks.outcome import BAD, CANNOT_BEGIN, Expected, Outcome, outcome_of_error
from attacks.suite import Suite, load_suite

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


class _Batch:
    """The cases of one child."""

    def __init__(self, suite: Suite, folder: Path, cell: Cell) -> None:
        self._suite, self._cell = suite, cell
        self._results = folder / "results"
        self._counts: dict[str, int] = {}
        self._noise: list[str] = []

    def run(self, first: int, count: int) -> None:
        self._listen()
        self._suite.begin()
        for seed in range(first, first + count):
            self._run_case(seed, first)
        self._cell.note("the end of a batch")
        self._finish(first + count - 1, first)
        self._say({"counts": self._counts, "first": first, "done": count})

    def _run_case(self, seed: int, first: int) -> None:
        self._cell.begin(seed)
        what = ""
        try:
            outcome = self._suite.case(Random(f"{self._suite.name}:{seed}"), self._cell.note)
        except BaseException as error:
            outcome, what = outcome_of_error(error), self._describe(error)
        if self._noise:
            outcome, what = Outcome.WRONG, "; ".join(self._noise)
            self._noise.clear()
        self._counts[outcome] = self._counts.get(outcome, 0) + 1
        if outcome in BAD or (outcome == Outcome.UNCLEAR and what):
            self._say({"seed": seed, "first": first, "outcome": outcome, "what": f"{what}\n{self._cell.read()[3]}"})

    def _finish(self, seed: int, first: int) -> None:
        """What a batch left behind counts as one more case."""
        outcome, what = Outcome.WRONG, ""
        try:
            self._suite.finish()
            gc.collect()
        except BaseException as error:
            outcome, what = outcome_of_error(error), self._describe(error)
        what = "; ".join([what, *self._noise]).removeprefix("; ")
        if what:
            self._counts[outcome] = self._counts.get(outcome, 0) + 1
            self._say({"seed": seed, "first": first, "outcome": outcome, "what": what})

    def _listen(self) -> None:
        """What nobody catches is a finding too."""

        def hear(report: Any) -> None:
            kind, value = report.exc_type, report.exc_value
            # What a stream was given to run is not ours; the hook of the interpreter is where its errors belong.
            if not issubclass(kind, Expected) and ".launch(" not in self._cell.read()[3]:
                where = getattr(report, "object", None) or getattr(report, "thread", None)
                self._noise.append(f"uncaught {kind.__name__}: {value} in {where!r:.200}")

        sys.unraisablehook = hear
        threading.excepthook = hear

    @staticmethod
    def _describe(error: BaseException) -> str:
        frames = traceback.extract_tb(error.__traceback__)
        try:
            text = str(error)
        except Exception as unsayable:
            text = f"(its text raises {unsayable!r})"
        where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-4:]))
        return f"{type(error).__name__}: {text[:300]}\n{where}"

    def _say(self, fact: dict[str, Any]) -> None:
        with self._results.open("a") as file:
            file.write(json.dumps(fact) + "\n")


def _run_child(suite: Suite, folder: Path, cell: Cell, first: int, count: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with the worker
    # What hangs is asked by a signal where it is.
    trouble = (folder / "trouble").open("w")
    faulthandler.enable(trouble)
    faulthandler.register(signal.SIGUSR2, trouble, all_threads=True)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    os.close(nowhere)
    home = folder / f"batch-{first}"
    home.mkdir(exist_ok=True)
    os.chdir(home)
    try:
        _Batch(suite, folder, cell).run(first, count)
    except BaseException:
        traceback.print_exc(file=trouble)
        trouble.flush()
        os._exit(CANNOT_BEGIN)
    os._exit(0)


def main() -> None:
    """Runs until standard input ends."""
    suite, folder = load_suite(sys.argv[1]), Path(sys.argv[2])
    cell = Cell(folder / "cell")
    cell.end()
    suite.prepare()
    gc.collect()
    gc.freeze()  # children neither look at what they share nor copy it
    print("ready", suite.why_not() or "", flush=True)
    for line in sys.stdin:
        first, count = map(int, line.split())
        cell.begin(first)
        child = os.fork()
        if child == 0:
            _run_child(suite, folder, cell, first, count)
        status = os.waitpid(child, 0)[1]
        cell.finish()
        print(status, flush=True)


if __name__ == "__main__":
    main()
