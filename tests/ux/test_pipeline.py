"""Frames of a GStreamer pipeline in OpenCV, over memory of ours, run as a newcomer runs it."""

import gc
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tensormem as tm

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipeline_to_opencv.py"


def _need_gstreamer() -> None:
    if shutil.which("gst-launch-1.0") is None:
        pytest.skip("GStreamer is not installed (apt-get install gstreamer1.0-tools gstreamer1.0-plugins-base)")


def test_opencv_works_on_frames_of_a_pipeline() -> None:
    _need_gstreamer()
    pytest.importorskip("cv2", reason="OpenCV is not installed (pip install opencv-python-headless)")
    done = subprocess.run([sys.executable, EXAMPLE, "--frames", "3"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = done.stdout.splitlines()
    assert len(rows) == 3
    assert all("115200 bytes, read-only True" in row for row in rows)


def test_frames_keep_their_memory_after_the_pipeline() -> None:
    _need_gstreamer()
    from edge.appsink import Pipeline

    source = "videotestsrc num-buffers=3 pattern=white ! video/x-raw,format=GRAY8,width=64,height=32"
    with Pipeline(f"{source} ! appsink name=out sync=false") as pipeline:
        frames = []
        while (frame := pipeline.read()) is not None:
            frames.append(frame)
    gc.collect()
    assert len(frames) == 3
    for frame in frames:
        assert frame.readonly and set(bytes(frame)) == {235}  # white of video
        with pytest.raises(tm.errors.InvalidArgument, match="read-only"):
            frame.fill_(0)


def test_a_pipeline_that_nobody_understands_is_refused() -> None:
    _need_gstreamer()
    from edge.appsink import Pipeline

    with pytest.raises(ValueError, match="does not understand"):
        Pipeline("no_such_element ! appsink name=out")
