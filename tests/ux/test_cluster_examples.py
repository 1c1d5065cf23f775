"""The examples on clusters, run as a newcomer runs them."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_camera_pipeline_copies_nothing_inside_a_node() -> None:
    said = run("ray_camera_pipeline.py", "--frames", "20")
    rows = {line.split()[0]: [int(cell) for cell in line.split()[1:]] for line in said.splitlines()[2:4]}
    assert rows["detector"] == [20, 20, 0, 0]
    assert rows["recorder"][:3] == [4, 0, 4]
    assert "Every frame was what it should be." in said


def test_the_blocks_of_the_dask_array_live_in_the_pools_and_are_given_back() -> None:
    said = run("dask_array_pipeline.py", "--blocks", "3")
    workers = [line.split() for line in said.splitlines() if line.startswith("worker")]
    assert len(workers) == 2
    assert sum(int(words[2]) for words in workers) >= 9
    assert all("0 bytes left" in " ".join(words) for words in workers)
    assert "The sum is NumPy's own." in said
