"""Two GPUs: neither reaches the other's memory without a grant, each has its own default streams, and a copy between
them comes after what others queued on either."""

from collections.abc import Callable, Iterator

import pytest

import tensormem as tm
from tensormem import errors, mr
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
    with simulated_gpu(memory="64MiB", vendor=request.param) as gpu:
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


def _allocate(memory: str, driver: Driver, nbytes: int) -> mr.DeviceBlock:
    """Memory that every stream may touch."""
    block = MAKERS[memory](driver).allocate(nbytes)
    Stream.default(driver).synchronize()
    return block


@pytest.mark.parametrize("memory", MAKERS)
def test_a_stream_of_one_gpu_copies_between_the_host_and_the_other_in_its_order(gpu: SimulatedGpu, memory: str) -> None:
    first, second = gpu.drivers
    target = _allocate(memory, second, 256)
    image = mr.PinnedMemoryResource(first).allocate(512)
    memoryview(image)[:256] = bytes(256)
    gate = Gate()
    with Stream(first) as stream:
        gate.hold(stream)
        first.copy(target.ptr, image.ptr, 256, stream)
        memoryview(image)[:256] = bytes(range(256))  # the copy up waits for the gate, and reads what is there then
        first.copy(image.ptr + 256, target.ptr, 256, stream)
        assert not stream.done
        gate.open()
        stream.synchronize()
    assert bytes(memoryview(image)[256:]) == bytes(range(256))
    second.copy(image.ptr, target.ptr, 256)
    Stream.default(second).synchronize()


@pytest.mark.parametrize("memory", MAKERS)
def test_a_stream_of_one_gpu_fills_memory_of_the_other_in_its_order(gpu: SimulatedGpu, memory: str) -> None:
    first, second = gpu.drivers
    target = _allocate(memory, second, 256)
    image = mr.PinnedMemoryResource(first).allocate(256)
    gate = Gate()
    with Stream(first) as stream:
        gate.hold(stream)
        first.fill(target.ptr, 7, 1, (256, 1, 1), stream)
        first.fill(target.ptr, 9, 1, (128, 1, 1), stream)
        first.copy(image.ptr, target.ptr, 256, stream)
        gate.open()
        stream.synchronize()
    assert bytes(memoryview(image)) == b"\x09" * 128 + b"\x07" * 128


def test_a_stream_that_is_held_up_holds_up_no_other_on_the_way_to_another_gpu(gpu: SimulatedGpu) -> None:
    first, second = gpu.drivers
    target = mr.GpuMemoryResource(second).allocate(256)
    gate = Gate()
    with Stream(first) as held, Stream(first) as free:
        gate.hold(held)
        first.fill(target.ptr, 1, 1, (128, 1, 1), held)
        first.fill(target.ptr + 128, 1, 1, (128, 1, 1), free)
        free.synchronize()
        assert not held.done
        gate.open()
        held.synchronize()


def test_what_carries_work_to_another_gpu_ends_with_its_stream(gpu: SimulatedGpu) -> None:
    first, second = gpu.drivers
    target = mr.GpuMemoryResource(second).allocate(256)
    Stream(first).close()
    before = gpu.report()
    for _ in range(3):
        with Stream(first) as stream:
            first.fill(target.ptr, 1, 1, (256, 1, 1), stream)
            stream.synchronize()
    assert gpu.report() == before


JOIN = {"cuda": "cuCtxEnablePeerAccess", "rocm": "hipDeviceEnablePeerAccess"}
OPEN_POOL = {"cuda": "cuMemPoolSetAccess", "rocm": "hipMemPoolSetAccess"}


@pytest.mark.parametrize("memory", MAKERS)
def test_gpus_that_can_reach_one_another_are_granted_what_is_copied_between_them(
    gpu: SimulatedGpu, memory: str
) -> None:
    first, second = gpu.drivers
    source, target = (_allocate(memory, driver, 4096) for driver in gpu.drivers)
    first.copy(target.ptr, source.ptr, 4096)
    Stream.default(first).synchronize()
    assert gpu.calls(JOIN[gpu.vendor]) == 2  # once each way
    later = _allocate(memory, second, 4096)
    first.copy(later.ptr, source.ptr, 4096)
    Stream.default(first).synchronize()
    assert gpu.calls(JOIN[gpu.vendor]) == 2
    with Stream(first) as stream:
        gpu.touch(target.ptr, 4096, stream)  # what a kernel would do, which no call names the devices for
        gpu.touch(later.ptr, 4096, stream)
        stream.synchronize()
    with Stream(second) as stream:
        gpu.touch(source.ptr, 4096, stream)
        stream.synchronize()


def test_gpus_that_cannot_reach_one_another_copy_by_calls_that_name_both() -> None:
    for vendor in JOIN:
        with simulated_gpu(memory="64MiB", vendor=vendor, peer=0) as gpu:
            for left, right in ((left, right) for left in MAKERS for right in MAKERS):
                test_values_go_from_any_memory_of_one_gpu_to_any_of_the_other(gpu, left, right)
            for memory in MAKERS:
                test_a_stream_of_one_gpu_copies_between_the_host_and_the_other_in_its_order(gpu, memory)
                test_a_stream_of_one_gpu_fills_memory_of_the_other_in_its_order(gpu, memory)
            assert gpu.calls(JOIN[vendor]) == gpu.calls(OPEN_POOL[vendor]) == 0


def test_a_mapping_that_its_owner_closed_to_a_gpu_is_not_opened_by_a_copy(gpu: SimulatedGpu) -> None:
    first, second = gpu.drivers
    size = first.granularity()[1]
    address, physical = first.reserve(size), first.physical_create(size)
    first.map(address, size, physical)
    first.set_access(address, size, "read_write")
    first.set_access(address, size, "none", device=1)
    target = mr.GpuMemoryResource(second).allocate(256)
    first.copy(target.ptr, address, 256)
    Stream.default(first).synchronize()
    stream = Stream(second)
    gpu.touch(address, 256, stream, write=False)
    with pytest.raises(errors.DriverError):
        stream.synchronize()


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
