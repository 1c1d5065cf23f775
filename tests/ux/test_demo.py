"""`make demo`, run as a newcomer runs it, on fewer requests and frames."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEMO), "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_the_demo_records_compares_three_stacks_and_writes_a_page(tmp_path: Path) -> None:
    done = run(tmp_path, "--requests", "80", "--budget", "96MiB", "--frames", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    for command in ("record", "stats", "replay", "report"):
        assert f"$ tensormem {command} " in done.stdout
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.split()}
    assert all(rows[stack][1] == "yes" for stack in ("pool", "binning", "elastic"))
    assert "Every frame was what it should be." in done.stdout and "NOT DONE" not in done.stdout
    assert (tmp_path / "report.html").as_uri() in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert "pictures.py:" in done.stdout and (tmp_path / "pictures.html").stat().st_size > 10_000
    assert (tmp_path / "replay.svg").read_text().startswith("<svg")
    assert done.stdout.splitlines()[-1] == f"Next: tensormem view {tmp_path}/run.tmt"


def test_the_demo_stops_at_a_step_that_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "--requests", "80", "--budget", "96 potatoes", "--frames", "1")
    assert done.returncode == 1 and "NOT DONE" in done.stdout and not (tmp_path / "report.html").exists()
