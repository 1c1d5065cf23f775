"""The example `ray_kv_cache_service.py`, run as a newcomer runs it: two nodes, four servers, one of them killed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ray_kv_cache_service.py"


def test_the_service_goes_on_and_the_budget_of_the_killed_server_comes_back() -> None:
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--rounds", "8", "--budget", "24MiB"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"killed chat on node 1 \(pid \d+\): (\d+ MiB) of \1 returned to its node", done.stdout)
    rows = re.findall(r"^(chat|code) on node ([12]) +8 +8", done.stdout, re.MULTILINE)
    assert len(rows) == 4, "every server served before and after"
    assert not re.search(r"not be brought back|: 0 B$", done.stdout), "under so small a budget something is evicted"


def test_a_budget_that_cannot_hold_a_service_is_refused() -> None:
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--budget", "4MiB"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "a budget of at least 16 MiB" in done.stderr
