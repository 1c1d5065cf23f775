"""The camera example, run as a newcomer runs it."""

import subprocess
import sys
from pathlib import Path

CAMERA = Path(__file__).resolve().parents[2] / "examples" / "camera_to_three.py"


def test_three_look_at_one_camera_and_each_sees_whole_frames_without_a_copy() -> None:
    done = subprocess.run([sys.executable, CAMERA, "--frames", "20"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert int(rows["camera"][1]) == 20
    assert 0 < int(rows["tracker"][1]) <= 20
    assert rows["tracker"][-1] == rows["model"][-1] == "0"
    assert "texture" in rows or "skipped: the texture" in done.stdout
    if "texture" in rows:
        assert rows["texture"][-1] == "1"
    assert "Every frame was what it should be." in done.stdout
