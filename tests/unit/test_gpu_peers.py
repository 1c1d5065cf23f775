"""Two GPUs: neither reaches the other's memory without a grant, each has its own default streams, and a copy between
them comes after what others queued on either."""

from collections.abc import Callable, Iterator

import pytest

import tensormem as tm
from tensormem import mr
from tensormem._core import Driver
from tensormem.copy.transfer import transfer
from tensormem.streams import Stream
from tensormem.testing import SimulatedGpu, simulated_gpu
from tensormem.testing.resources import Gate

Maker = Callable[[Driver], mr.DeviceMemoryResource]
MAKERS: dict[str, Maker] = {
    "plain": mr.GpuMemoryResource,
    "pooled": mr.GpuAsyncMemoryResource,
    "mapped": lambda driver: mr.ElasticMemoryResource(driver, capacity="16MiB"),
}


@pytest.fixture(params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory="64MiB", vendor=request.param, habits={"peer_grants": True}) as gpu:
        yield gpu


class Foreign:
    """A stream of another library, by its handle."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


@pytest.mark.parametrize("left", MAKERS)
@pytest.mark.parametrize("right", MAKERS)
def test_values_go_from_any_memory_of_one_gpu_to_any_of_the_other(gpu: SimulatedGpu, left: str, right: str) -> None:
    source = tm.empty(1000, "uint8", mr=MAKERS[left](gpu.drivers[0]))
    source.copy_(_numbers(1000))
    target = tm.empty(1000, "uint8", mr=MAKERS[right](gpu.drivers[1]))
    transfer(target, source, None)
    assert bytes(target.to("main")) == bytes(number % 256 for number in range(1000))


def _numbers(count: int) -> tm.Tensor:
    return tm.from_buffer(bytes(number % 256 for number in range(count))).to("gpu:0")


def test_boxes_go_between_gpus_and_the_driver_finds_out_whose_memory_is_whose(gpu: SimulatedGpu) -> None:
    first, second = gpu.drivers
    source, target = mr.GpuMemoryResource(first).allocate(4096), mr.GpuMemoryResource(second).allocate(4096)
    image = mr.PinnedMemoryResource(first).allocate(4096)
    memoryview(image)[:] = bytes(range(256)) * 16
    first.copy(source.ptr, image.ptr, 4096)
    first.copy_pitched(target.ptr, 64, source.ptr, 128, (32, 4, 2), destination_plane=512, source_plane=1024)
    Stream.default(first).synchronize()
    memoryview(image)[:] = bytes(4096)
    second.copy(image.ptr, target.ptr, 4096)
    Stream.default(second).synchronize()
    assert bytes(memoryview(image)[64:96]) == bytes(range(128, 160))
    assert bytes(memoryview(image)[512 + 128 : 512 + 160]) == bytes(range(32))


@pytest.mark.parametrize("device", [0, 1])
def test_a_stream_of_one_gpu_copies_within_the_other(gpu: SimulatedGpu, device: int) -> None:
    source = _numbers(256).to(f"gpu:{device}")
    target = tm.empty(256, "uint8", space=f"gpu:{device}")
    with Stream(gpu.drivers[1 - device]) as stream:
        target.copy_(source, stream=stream)
        stream.synchronize()
    assert bytes(target.to("main")) == bytes(range(256))


def test_a_copy_comes_after_what_others_queued_on_the_sources_default_stream(gpu: SimulatedGpu) -> None:
    source = tm.zeros(256, "uint8", space="gpu:0")
    source.wait()
    gate = Gate()
    theirs = Stream.default(gpu.drivers[0])
    gate.hold(theirs)
    gpu.drivers[0].fill(source.ptr, 7, 1, (256, 1, 1))  # not ours to know: no use of the tensor was told
    moved = source.to("gpu:1")
    assert not moved.ready
    gate.open()
    assert bytes(moved.to("main")) == b"\x07" * 256


def test_what_others_queue_behind_a_copy_does_not_change_what_it_reads(gpu: SimulatedGpu) -> None:
    source = tm.full(256, 7, "uint8", space="gpu:0")
    gate = Gate()
    gate.hold(Stream.default(gpu.drivers[1]))
    moved = source.to("gpu:1")
    gpu.drivers[0].fill(source.ptr, 9, 1, (256, 1, 1))
    gate.open()
    assert bytes(moved.to("main")) == b"\x07" * 256


@pytest.mark.parametrize("handle", [1, 2])
def test_the_legacy_and_the_per_thread_stream_are_each_devices_own(gpu: SimulatedGpu, handle: int) -> None:
    blocks = [mr.GpuAsyncMemoryResource(driver).allocate(4096, Foreign(handle)) for driver in gpu.drivers]
    first, second = (block.alloc_stream for block in blocks)
    assert first != second and first.driver is gpu.drivers[0] and second.driver is gpu.drivers[1]
    for driver, block in zip(gpu.drivers, blocks, strict=True):
        driver.fill(block.ptr, 1, 1, (4096, 1, 1), Foreign(handle))  # which a stream of the other device may not
