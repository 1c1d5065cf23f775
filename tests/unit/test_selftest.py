"""`tensormem selftest`: the device suite and the timings of a device, as a table and as a file."""

import json
import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from tensormem.cli.main import cli
from tensormem.reports.selftest import Failure, SelftestReport
from tensormem.testing.gpus import simulated_environment


def test_a_simulated_device_passes_and_says_that_it_is_simulated(tmp_path: Path) -> None:
    environment = {**os.environ, **simulated_environment(1, "256MiB"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tensormem", "selftest", "--device", "cuda:0"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "cuda:0: tensormem simulated GPU 0 (simulated" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Next: send tensormem-selftest-cuda-0.json")
    report = json.loads((tmp_path / "tensormem-selftest-cuda-0.json").read_text())
    assert (report["version"], report["simulated"], report["failures"]) == (1, True, [])
    assert report["passed"] > 300
    assert len(report["microseconds"]) == 5 and all(value > 0 for value in report["microseconds"].values())


def test_a_device_that_is_not_there_ends_with_3_and_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    result = CliRunner().invoke(cli, ["selftest", "--device", "cuda:77", "--output", str(file)])
    assert result.exit_code == 3
    assert "cuda" in result.stderr and not file.exists()


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("precious")
    result = CliRunner().invoke(cli, ["selftest", "--output", str(file)])
    assert (result.exit_code, file.read_text()) == (2, "precious")
    assert "--force" in result.stderr


def test_a_report_passes_only_when_something_ran_and_nothing_failed() -> None:
    assert not SelftestReport("host", "", False, 0, 5, (), {}).passes
    assert not SelftestReport("host", "", False, 5, 0, (Failure("test", "why"),), {}).passes
