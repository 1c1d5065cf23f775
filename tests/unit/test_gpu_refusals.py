"""What is not a driver, is too old, is lost, was reset by others, or belongs to another context: refused by name, with
every byte accounted for, and a process that ends well."""

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from support.bare_gpu import BareGpu
from support.python_processes import run_python
from tensormem import errors, mr
from tensormem._core import Driver, open_gpu
from tensormem.drivers import simulator
from tensormem.streams import Stream
from tensormem.testing import SimulatedGpu, simulated_gpu
from tensormem.testing.gpus import simulated_environment

VENDORS = ["cuda", "rocm"]
KIND = {"cuda": "a CUDA driver", "rocm": "a HIP runtime"}
LOST = {"cuda": "CUDA_ERROR_LAUNCH_FAILED", "rocm": "hipErrorLaunchFailure"}
RESET = {"cuda": "CUDA_ERROR_CONTEXT_IS_DESTROYED", "rocm": "hipErrorContextIsDestroyed"}
MAKERS: dict[str, Callable[[Driver], mr.DeviceMemoryResource]] = {
    "plain": mr.GpuMemoryResource,
    "stream-ordered": mr.GpuAsyncMemoryResource,
    "pinned": mr.PinnedMemoryResource,
    "managed": mr.ManagedMemoryResource,
    "pool": lambda driver: mr.PoolMemoryResource(mr.GpuMemoryResource(driver)),
}


# --- Files that are not drivers ---


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_file_that_is_not_a_library_is_not_opened(vendor: str, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("not a library")
    for name in ("nowhere.so", "text.so"):
        with pytest.raises(errors.DriverUnavailable, match=f"{name} cannot be opened"):
            open_gpu(vendor, str(tmp_path / name))


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_library_that_is_not_a_driver_is_refused_by_name(vendor: str) -> None:
    other = simulator.library_path("rocm" if vendor == "cuda" else "cuda")
    for library in (other, "libc.so.6"):
        with pytest.raises(errors.DriverUnavailable, match=f"is not {KIND[vendor]}"):
            open_gpu(vendor, library)


# --- Drivers that are too old ---


def test_a_cuda_driver_that_is_too_old_says_which_is_needed() -> None:
    with (
        pytest.raises(errors.DriverUnavailable, match=r"version 11\.2; 11\.3 or newer is needed"),
        simulated_gpu(version=11020),
    ):
        pass


def test_a_hip_runtime_that_is_too_old_says_what_it_lacks() -> None:
    with (
        pytest.raises(errors.DriverUnavailable, match=r"too old \(5\.2\): it has no hipLaunchHostFunc"),
        simulated_gpu(vendor="rocm", version=50200000, without=["hipLaunchHostFunc"]),
    ):
        pass


# --- A device that is lost ---


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_device_lost_in_the_middle_is_told_by_name_and_nothing_is_miscounted(vendor: str, maker: str) -> None:
    with simulated_gpu(memory="64MiB", vendor=vendor) as gpu:
        lost, healthy = (MAKERS[maker](driver) for driver in gpu.drivers)
        stream = Stream(gpu.drivers[0])
        blocks = [lost.allocate(100_000, stream) for _ in range(3)]
        gpu.break_device(0, 719)
        with pytest.raises(errors.DriverError, match=LOST[vendor]):
            lost.allocate(1 << 20, stream)
        with pytest.raises(errors.DriverError, match=LOST[vendor]):
            stream.synchronize()
        assert lost.bytes_outstanding == sum(block.nbytes for block in blocks)
        healthy.deallocate(healthy.allocate(100_000))
        assert healthy.bytes_outstanding == 0
        del blocks, lost, stream
        gc.collect()


# --- A device that somebody else reset ---


def reset(gpu: SimulatedGpu) -> None:
    library = ctypes.CDLL(gpu.library)
    assert (library.cuDevicePrimaryCtxReset_v2(0) if gpu.vendor == "cuda" else library.hipDeviceReset()) == 0


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_device_reset_by_somebody_else_is_told_by_name_and_its_memory_counts_as_gone(vendor: str, maker: str) -> None:
    with simulated_gpu(memory="64MiB", vendor=vendor) as gpu:
        resource, other = (MAKERS[maker](driver) for driver in gpu.drivers)
        stream = Stream(gpu.drivers[0])
        blocks = [resource.allocate(100_000, stream) for _ in range(3)]
        reset(gpu)
        for call in (lambda: resource.allocate(1 << 20, stream), stream.synchronize, lambda: Stream(gpu.drivers[0])):
            with pytest.raises(errors.DriverError) as caught:
                call()
            assert caught.value.name == RESET[vendor]
            assert "a device that somebody else reset" in str(caught.value)
        for block in blocks:
            resource.deallocate(block)
        assert resource.bytes_outstanding == 0
        other.deallocate(other.allocate(100_000))
        stream.close()


@pytest.mark.parametrize("vendor", VENDORS)
def test_what_others_allocate_after_a_reset_is_not_freed_by_a_block_from_before(vendor: str) -> None:
    with simulated_gpu(memory="64MiB", vendor=vendor) as gpu:
        resource = mr.GpuMemoryResource(gpu.drivers[0])
        block = resource.allocate(4096)
        reset(gpu)
        theirs = BareGpu(gpu).allocate()
        assert theirs == block.ptr  # the same address, of another owner
        resource.deallocate(block)
        assert gpu.report()["allocations"] == 1


# --- Streams of other contexts ---


class Foreign:
    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def test_a_stream_of_another_context_is_refused_by_name() -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        library, context, stream = ctypes.CDLL(gpu.library), ctypes.c_void_p(), ctypes.c_void_p()
        resource = mr.GpuMemoryResource(gpu.drivers[0])
        assert library.cuCtxCreate_v2(ctypes.byref(context), ctypes.c_uint(0), ctypes.c_int(0)) == 0
        assert library.cuStreamCreate(ctypes.byref(stream), ctypes.c_uint(1)) == 0
        with pytest.raises(errors.StreamMisuse, match="another context than the device's primary one"):
            resource.allocate(4096, Foreign(stream.value or 0))
        assert (resource.bytes_outstanding, gpu.platform.held["streams"], gpu.memory()) == (0, 0, {})
        assert library.cuCtxDestroy_v2(context) == 0


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_handle_that_is_not_a_stream_is_refused_by_name(vendor: str) -> None:
    with simulated_gpu(memory="64MiB", vendor=vendor) as gpu:
        resource = mr.GpuMemoryResource(gpu.drivers[0])
        with pytest.raises(errors.StreamMisuse, match="not that of a stream"):
            resource.allocate(4096, Foreign(0xDEAD0))
        assert (resource.bytes_outstanding, gpu.platform.held["streams"], gpu.memory()) == (0, 0, {})


# --- The end ---


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("trouble", ["lost", "reset"])
def test_a_process_that_lost_its_device_ends_well(vendor: str, trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in simulated_environment(1, "256MiB", vendor=vendor).items():
        monkeypatch.setenv(name, value)
    result = run_python(
        f"""
        import ctypes
        import tensormem as tm
        from tensormem import mr
        from tensormem.drivers import simulator
        driver = tm.drivers.get({vendor!r} + ":0")
        library = ctypes.CDLL(simulator.library_path({vendor!r}))
        stream = tm.Stream(driver)
        resources = [
            mr.GpuMemoryResource(driver),
            mr.GpuAsyncMemoryResource(driver),
            mr.PinnedMemoryResource(driver),
            mr.ElasticMemoryResource(driver, capacity="16MiB"),
            mr.PoolMemoryResource(mr.GpuMemoryResource(driver)),
        ]
        blocks = [resource.allocate(100_000, stream) for resource in resources]
        tensor = tm.zeros(1000, space={vendor!r} + ":0")
        if {trouble!r} == "lost":
            assert library.tensormem_simgpu_break_device(0, 719) == 0
        elif {vendor!r} == "cuda":
            assert library.cuDevicePrimaryCtxReset_v2(0) == 0
        else:
            assert library.hipDeviceReset() == 0
        try:
            tm.zeros(1 << 20, space={vendor!r} + ":0")
        except tm.errors.DriverError as error:
            print(error.name)
        """,
        time_limit=60,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == (LOST if trouble == "lost" else RESET)[vendor]
    assert "Traceback" not in result.stderr and "Fatal" not in result.stderr
