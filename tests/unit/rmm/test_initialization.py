"""Beginning anew, the resource of each device, and the log files of all of them."""

from pathlib import Path
from typing import Any

import pytest

import tensormem as tm
from tensormem import errors, rmm
from tensormem.rmm._cuda.gpu import getDevice, getDeviceCount, setDevice
from tensormem.rmm.pylibrmm.helper import parse_bytes
from tensormem.testing.gpus import SimulatedGpu


def test_each_mode_makes_its_resource(gpu: SimulatedGpu) -> None:
    rmm.reinitialize(pool_allocator=True, managed_memory=True, initial_pool_size="1MiB", devices=[0, 1])
    for device in (0, 1):
        pool = rmm.mr.get_per_device_resource(device)
        assert isinstance(pool, rmm.mr.PoolMemoryResource) and pool.pool_size() == 1 << 20
        assert isinstance(pool.get_upstream(), rmm.mr.ManagedMemoryResource) and pool.resource.device_ordinal == device
    rmm.reinitialize()
    assert isinstance(rmm.mr.get_current_device_resource(), rmm.mr.CudaMemoryResource)


def test_the_current_device_is_the_threads_own(gpu: SimulatedGpu) -> None:
    assert (getDevice(), getDeviceCount()) == (0, 2)
    setDevice(1)
    try:
        assert rmm.mr.get_current_device_resource().resource.device_ordinal == 1
        assert rmm.DeviceBuffer.to_device(b"abc").tobytes() == b"abc"
    finally:
        setDevice(0)
    with pytest.raises(errors.DriverUnavailable):
        setDevice(2)
    assert getDevice() == 0


def test_a_failed_beginning_changes_nothing() -> None:
    before = rmm.mr.get_current_device_resource()
    with pytest.raises(ValueError, match="Could not parse"):
        rmm.reinitialize(pool_allocator=True, initial_pool_size="2k")
    with pytest.raises(RuntimeError, match="Initial pool size"):
        rmm.reinitialize(pool_allocator=True, initial_pool_size=2048, maximum_pool_size=1024)
    assert rmm.mr.get_current_device_resource() is before


def test_a_maximum_holds() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=0, maximum_pool_size="8MiB")
    rmm.DeviceBuffer().resize((1 << 23) - 1)
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer().resize(1 << 24)


def test_the_resource_of_a_device_serves_tensors_too() -> None:
    counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.SystemMemoryResource())
    rmm.mr.set_current_device_resource(counted)
    tensor = tm.empty(100, "uint8")
    assert counted.allocation_counts.current_bytes == tensor.nbytes
    wrong: Any = tm.mr.HostMemoryResource()
    with pytest.raises(errors.InvalidArgument, match=r"rmm\.mr"):
        rmm.mr.set_current_device_resource(wrong)


def test_hooks_are_called_latest_first_and_removed_altogether() -> None:
    seen: list[int] = []
    try:
        assert rmm.register_reinitialize_hook(seen.append, 1) == seen.append
        rmm.register_reinitialize_hook(seen.append, 2)
        rmm.reinitialize()
        assert seen == [2, 1]
    finally:
        rmm.unregister_reinitialize_hook(seen.append)
    rmm.reinitialize()
    assert seen == [2, 1] and rmm.is_initialized()


def test_logging_writes_rmms_rows_for_each_device(tmp_path: Path) -> None:
    rmm.enable_logging(str(tmp_path / "rmm.csv"))
    rmm.DeviceBuffer(size=1000)
    assert rmm.get_log_filenames() == {0: str(tmp_path / "rmm.dev0.csv")}
    rmm.disable_logging()
    assert rmm.get_log_filenames() == {0: None}
    rows = (tmp_path / "rmm.dev0.csv").read_text().splitlines()
    assert rows[0] == "Thread,Time,Action,Pointer,Size,Stream"
    assert [row.split(",")[2] for row in rows[1:]] == ["allocate", "free"]


def test_the_log_file_is_named_by_the_environment_or_has_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RMM_LOG_FILE", raising=False)
    with pytest.raises(ValueError, match="RMM_LOG_FILE"):
        rmm.reinitialize(logging=True)
    monkeypatch.setenv("RMM_LOG_FILE", str(tmp_path / "log.txt"))
    rmm.reinitialize(logging=True)
    assert rmm.get_log_filenames() == {0: str(tmp_path / "log.dev0.txt")}


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("2kib", 2048), ("2 KB", 2000), ("1.5MiB", 3 << 19), ("7", 7), ("0.3b", 0), (12, 12), ("1PiB", 1 << 50)],
)
def test_sizes_are_read_as_rmm_reads_them(text: int | str, nbytes: int) -> None:
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["2k", "kib", "", "1 ib", "-1", "1e3", "2kib "])
def test_what_rmm_cannot_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="Could not parse"):
        parse_bytes(text)


@pytest.mark.parametrize("level", rmm.level_enum)
def test_levels_of_the_debug_log_are_kept(level: rmm.level_enum) -> None:
    before = rmm.get_logging_level(), rmm.get_flush_level()
    try:
        rmm.set_logging_level(level)
        rmm.set_flush_level(level)
        assert rmm.get_logging_level() == rmm.get_flush_level() == level and rmm.should_log(level)
    finally:
        rmm.set_logging_level(before[0])
        rmm.set_flush_level(before[1])


@pytest.mark.parametrize("level", ["INFO", 3, None])
def test_other_levels_are_a_type_error(level: Any) -> None:
    for call in (rmm.set_logging_level, rmm.set_flush_level, rmm.should_log):
        with pytest.raises(TypeError):
            call(level)


def test_outstanding_allocations_go_to_the_debug_log(caplog: pytest.LogCaptureFixture) -> None:
    tracked = rmm.mr.TrackingResourceAdaptor(rmm.mr.SystemMemoryResource())
    buffer = rmm.DeviceBuffer(size=1000, mr=tracked)
    with caplog.at_level("INFO", "tensormem.rmm"):
        tracked.log_outstanding_allocations()
    assert f"{buffer.ptr:#x}" in caplog.text
