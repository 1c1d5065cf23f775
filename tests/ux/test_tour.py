"""The tour, run as a newcomer runs it."""

import re
import subprocess
import sys
from pathlib import Path

TOUR = Path(__file__).resolve().parents[2] / "examples" / "tour.py"


def test_the_tour_runs_through_with_every_expectation_held() -> None:
    done = subprocess.run([sys.executable, TOUR], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, verdict, next_step = done.stdout.splitlines()
    held, total = map(int, re.findall(r"^(\d+) of (\d+) expectations held", verdict)[0])
    assert held == total >= 15
    assert next_step == "Next: tensormem doctor"
    assert "NOT TRUE" not in done.stdout
    assert done.stderr == ""


def test_an_expectation_that_does_not_hold_is_repeated_at_the_end_and_fails_the_tour() -> None:
    code = (
        "from tour_stops.guide import Guide; g = Guide(); g.expect('pigs fly', False); raise SystemExit(g.close(1.0))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=TOUR.parent, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-3:] == [
        "NOT TRUE: pigs fly",
        "0 of 1 expectations held, in 1.0 s.",
        "Next: tensormem doctor",
    ]
