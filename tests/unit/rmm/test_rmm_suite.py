"""RMM's own tests are found in a checkout and run against `tensormem.rmm`."""

import json
from pathlib import Path

import pytest

import tensormem.rmm
from tensormem.testing import rmm_suite

TEST = """
import numpy as np
import pytest
import rmm
from rmm.pylibrmm.stream import Stream
from rmm.pylibrmm.memory_resource._memory_resource import _flush_logs

def test_a_buffer_of_the_simulated_gpu():
    assert rmm.DeviceBuffer.to_device(b"abc", Stream()).tobytes() == b"abc"
    assert isinstance(rmm.mr.get_current_device_resource(), rmm.mr.CudaMemoryResource)

def test_wrong():
    assert rmm.__version__ == "0"

def test_needs_more():
    assert "cudaErrorCallRequiresNewerDriver" == 0

@pytest.mark.skip(reason="no")
def test_skipped():
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "rmm" / "python" / "rmm" / "rmm" / "tests"
    folder.mkdir(parents=True)
    (folder / "test_some.py").write_text(TEST)
    (tmp_path / "rmm" / "VERSION").write_text("26.10.00\n")
    return tmp_path / "rmm"


def test_tests_of_a_checkout_are_counted(checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rmm_suite.main([str(checkout), "--counts", str(tmp_path / "counts.json")]) == 1
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert counts["rmm"] == "26.10.00"
    assert counts["total"] == {"failure": 1, "needs the CUDA runtime": 1, "passed": 1, "skipped": 1}
    assert counts["files"] == {"test_some": counts["total"]}


def test_a_folder_that_is_not_a_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not a checkout of RMM"):
        rmm_suite.run(tmp_path)


def test_the_kept_counts_are_of_the_series_whose_names_these_are() -> None:
    counts = json.loads((Path(__file__).parents[2] / "rmm-counts.json").read_text())
    assert counts["rmm"].split(".")[0] == tensormem.rmm.__version__.split(".")[0]
    assert counts["total"]["failure"] == 1 and counts["total"]["passed"] > 1000
