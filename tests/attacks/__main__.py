"""Owns: the soak: `python -m attacks` runs every attack for a number of cases or minutes, watches a process that only
works, and tells what came of it. scripts/soak.sh calls it; `--page` writes the table of the documentation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attacks.crew import Crew
from attacks.endurance import Figures, grown
from attacks.suite import load_suite, suite_names
from attacks.table import SoakReport, text_of, write_page

__all__ = ["main"]

_TESTS = Path(__file__).resolve().parents[1]
_REPORT_SECONDS = 15.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/soak.sh", description="Attack tensormem for a long time.")
    parser.add_argument("--cases", type=int, default=1_000_000, help="how many, over all suites (1,000,000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each suite (0)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--only", choices=suite_names(), action="append", help="this suite; can be said several times")
    parser.add_argument("--workers", type=int, default=1 + (os.cpu_count() or 1), help="processes at once")
    parser.add_argument("--page", type=Path, help="write the table of the documentation there")
    parser.add_argument("--fuzzing", type=Path, help="a file with what coverage-guided fuzzing came to")
    parser.add_argument("--no-endurance", action="store_true", help="do not watch a process that only works")
    return parser.parse_args()


def plan(names: list[str], cases: int, seed: int) -> list[tuple[str, int, int]]:
    """Batches of all suites, spread so that every suite has had its share at any time."""
    suites = [load_suite(name) for name in names]
    total = sum(suite.share for suite in suites)
    batches: list[tuple[float, tuple[str, int, int]]] = []
    for suite in suites:
        count = max(1, round(cases * suite.share / total)) if len(suites) > 1 else cases
        for first in range(0, count, suite.batch):
            batches.append((first / count, (suite.name, seed + first, min(suite.batch, count - first))))
    return [batch for _, batch in sorted(batches, key=lambda entry: entry[0])]


class _Endurance:
    """The process that only works, for as long as there is no end to the soak."""

    def __init__(self, seconds: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tensormem-endurance-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "attacks.endurance", str(seconds)],
            cwd=self._folder.name,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")])},
            stdout=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> tuple[list[Figures], int | None]:
        """What it came to; the code when it ended by itself, as it should not."""
        code = self._process.poll()
        self._process.terminate()
        out, _ = self._process.communicate()
        self._folder.cleanup()
        lines = [line.split() for line in out.splitlines()]
        return [
            Figures(float(a), int(b), int(c), int(d)) for a, b, c, d in (each for each in lines if len(each) == 4)
        ], code


def main() -> int:
    """The exit code: 0 when nothing was found."""
    options = _options()
    names = options.only or suite_names()
    start = time.monotonic()
    until = start + options.minutes * 60
    told = [start]

    def progress(crew: Crew) -> None:
        now = time.monotonic()
        if now - told[0] >= _REPORT_SECONDS:
            told[0] = now
            done = sum(tally.cases for tally in crew.tallies.values())
            found = sum(len(tally.findings) for tally in crew.tallies.values())
            print(f"{now - start:6.0f} s  {done:9,} cases  {found} findings", flush=True)

    endurance = None if options.no_endurance else _Endurance(10**6)
    crew = Crew(options.workers, progress)
    try:
        crew.run(plan(names, options.cases, options.seed), until)
    except KeyboardInterrupt:
        print("interrupted; what there is so far:", flush=True)
    finally:
        crew.close()
        figures, code = endurance.finish() if endurance else ([], None)
    fuzzing = options.fuzzing.read_text().splitlines() if options.fuzzing and options.fuzzing.exists() else []
    report = SoakReport(crew.tallies, time.monotonic() - start, options.seed, figures, grown(figures), code, fuzzing)
    print(text_of(report))
    if options.page:
        write_page(report, options.page)
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
