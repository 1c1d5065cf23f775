"""The gauges of workers among Ray's own metrics, on a cluster that has these switched on."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "ray_gauges.py"


def test_the_page_that_prometheus_reads_on_a_node_has_the_memory_of_its_workers() -> None:
    pytest.importorskip("aiohttp", reason="Ray exports metrics only with what ray[default] installs")
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    figures = {line.split("{")[0]: float(line.split()[-1]) for line in done.stdout.splitlines() if "{" in line}
    assert figures["ray_tensormem_used"] == figures["ray_tensormem_live"] == 6 << 20, done.stdout + done.stderr
    assert figures["ray_tensormem_budget"] == 64 << 20
    assert figures["ray_tensormem_refusals"] == 0
