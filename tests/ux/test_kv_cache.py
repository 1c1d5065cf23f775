"""The example `kv_cache.py`, run as a newcomer runs it, on the first of the requests."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kv_cache.py"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, timeout=120)


def rows(output: str) -> dict[str, list[str]]:
    lines = [line for line in output.splitlines() if line.startswith(("static", "fixed blocks", "tensormem"))]
    return {line[:12].strip(): line[12:].replace(",", "").split() for line in lines}


def test_the_example_serves_more_requests_than_its_peers_in_the_same_budget(tmp_path: Path) -> None:
    picture = tmp_path / "kv.png"
    done = run("--requests", "600", "--budget", "128MiB", "--plot", picture)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    served = {name: int(cells[4]) for name, cells in rows(done.stdout).items()}
    assert list(served) == ["static", "fixed blocks", "tensormem"]
    assert served["tensormem"] > served["fixed blocks"] > served["static"]
    assert picture.is_file() or "matplotlib is not installed" in done.stdout


def test_a_trace_of_ones_own_is_read_and_a_missing_one_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    done = run("--trace", file, "--budget", "128MiB", "--plot", tmp_path / "kv.png")
    assert done.returncode == 0, done.stderr
    assert "1 requests" in done.stdout
    refused = run("--trace", tmp_path / "none.csv")
    assert refused.returncode == 2
    assert "there is no file" in refused.stderr
