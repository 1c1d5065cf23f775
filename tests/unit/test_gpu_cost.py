"""What a GPU's driver is asked for, and how often: pools of our own that keep their memory, events without a time
unless somebody wants it, fills in as few calls as the value allows."""

from collections.abc import Iterator

import pytest

import tensormem as tm
from tensormem import errors, mr
from tensormem.streams import Event, Stream
from tensormem.testing import SimulatedGpu, simulated_gpu

KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture(params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory="64MiB", vendor=request.param) as gpu:
        yield gpu


def used(gpu: SimulatedGpu) -> int:
    free, total = gpu.drivers[0].memory_info()
    return total - free


def churn(resource: mr.GpuAsyncMemoryResource, nbytes: int) -> None:
    with Stream(resource.driver) as stream:
        resource.deallocate(resource.allocate(nbytes, stream), stream)
        stream.synchronize()


# --- Pools ---


def test_a_stream_ordered_resource_keeps_its_memory_until_it_is_trimmed(gpu: SimulatedGpu) -> None:
    resource = mr.GpuAsyncMemoryResource(gpu.drivers[0])
    churn(resource, 8 * MIB)
    assert resource.release_threshold is None and used(gpu) >= 8 * MIB
    resource.trim()
    assert used(gpu) == 0


def test_memory_above_the_release_threshold_goes_back_when_a_stream_is_waited_for(gpu: SimulatedGpu) -> None:
    resource = mr.GpuAsyncMemoryResource(gpu.drivers[0], release_threshold=0)
    churn(resource, 8 * MIB)
    assert resource.release_threshold == 0 and used(gpu) == 0
    resource.release_threshold = "16MiB"
    churn(resource, 8 * MIB)
    assert resource.release_threshold == 16 * MIB and used(gpu) >= 8 * MIB
    with pytest.raises(errors.InvalidSize):
        resource.release_threshold = -1
    assert resource.release_threshold == 16 * MIB


def test_two_resources_have_two_pools_which_end_with_them(gpu: SimulatedGpu) -> None:
    first, second = mr.GpuAsyncMemoryResource(gpu.drivers[0]), mr.GpuAsyncMemoryResource(gpu.drivers[0])
    churn(first, 8 * MIB)
    second.trim()
    assert used(gpu) >= 8 * MIB and gpu.platform.held["pools"] == 2
    del first
    assert used(gpu) == 0 and gpu.platform.held["pools"] == 1


def test_a_device_without_pools_is_refused_by_name_where_the_resource_is_made() -> None:
    with simulated_gpu(memory="64MiB", pools=0), pytest.raises(errors.NotSupported, match="no pools"):
        mr.GpuAsyncMemoryResource("cuda:0")


# --- Events ---


def test_only_events_that_are_asked_for_the_time_keep_it(gpu: SimulatedGpu) -> None:
    pool = mr.PoolMemoryResource(mr.GpuAsyncMemoryResource(gpu.drivers[0]))
    with Stream(gpu.drivers[0]) as stream, Stream(gpu.drivers[0]) as other:
        block = pool.allocate(4096, stream)
        pool.finish_block_use(block, other, "write")
        pool.deallocate(block, stream)
        stream.record()
        assert gpu.timing_records == 0
        stream.record(timing=True)
        assert gpu.timing_records == 1
        with pytest.raises(errors.InvalidArgument, match="timing=True"):
            stream.record().seconds_since(Event(gpu.drivers[0], timing=True))


# --- Fills ---


def calls_of_fill(gpu: SimulatedGpu, value: int, element: int, shape: tuple[int, int, int], pitch: int) -> int:
    driver = gpu.drivers[0]
    block = mr.GpuMemoryResource(driver).allocate(pitch * shape[1] * shape[2])
    image = tm.empty(block.nbytes, "uint8", space="pinned")
    driver.fill(block.ptr, 0x11, 1, (block.nbytes, 1, 1))
    mark = len([line for line in gpu.log() if "emset" in line or "emcpy" in line])
    driver.fill(block.ptr, value, element, shape, pitch=pitch)
    calls = len([line for line in gpu.log() if "emset" in line or "emcpy" in line]) - mark
    driver.copy(image.ptr, block.ptr, block.nbytes)
    Stream.default(driver).synchronize()
    row = value.to_bytes(element, "little") * (shape[0] // element) + b"\x11" * (pitch - shape[0])
    assert bytes(image) == row * (shape[1] * shape[2])
    return calls


@pytest.mark.parametrize("value", [0, 0x0101010101010101, 0x0102010201020102, 0x0102030401020304])
def test_a_wide_value_that_repeats_itself_is_one_call(gpu: SimulatedGpu, value: int) -> None:
    assert calls_of_fill(gpu, value, 8, (128 * KIB, 1, 1), 128 * KIB) == 1
    assert calls_of_fill(gpu, value & 0xFFFFFFFF, 4, (128 * KIB, 1, 1), 128 * KIB) == 1


def test_any_wide_value_takes_few_calls_however_long_the_fill_is(gpu: SimulatedGpu) -> None:
    assert calls_of_fill(gpu, 0x0102030405060708, 8, (128 * KIB, 1, 1), 128 * KIB) <= 16
    assert calls_of_fill(gpu, 0x0102030405060708, 8, (1000 * 8, 1, 1), 1000 * 8) <= 12
    assert calls_of_fill(gpu, 0x0102030405060708, 8, (256, 100, 1), 512) <= 14
    assert calls_of_fill(gpu, 0x0102030405060708, 8, (256, 100, 1), 256) <= 14


@pytest.mark.parametrize("element", [1, 2, 4])
def test_rows_of_elements_are_not_a_call_each(gpu: SimulatedGpu, element: int) -> None:
    value = 0x01020304 & ((1 << 8 * element) - 1)
    assert calls_of_fill(gpu, value, element, (256, 100, 1), 512) <= 8
    assert calls_of_fill(gpu, value, element, (256, 100, 1), 256) <= 1
    assert calls_of_fill(gpu, value, element, (256, 3, 2), 512) <= 6
