"""No call of a GPU's driver holds the GIL: each function of both tables is held in turn until another Python thread has
let it go. A call that kept the GIL would keep that thread from running, and would be missed."""

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tensormem import errors, mr
from tensormem._core import Driver, GpuPlatform, open_gpu
from tensormem.streams import Event, Stream
from tensormem.testing import SimulatedGpu, simulated_gpu

MIB = 1 << 20
# They look a text up and cannot wait; the simulated GPU does not count them.
TEXTS = {"cuGetErrorName", "cuGetErrorString", "hipGetErrorName", "hipGetErrorString"}


class Foreign:
    """A stream that another library made."""

    def __init__(self, stream: Stream) -> None:
        self._handle = stream.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def use_streams(driver: Driver, other: Driver, foreign: Foreign) -> None:
    with Stream(driver) as stream, Stream(other) as second:
        start, end = Event(driver, timing=True), Event(driver, timing=True)
        start.record(stream)
        stream.launch(int)
        stream.record(end)
        second.wait(end)
        end.synchronize()
        assert end.done and end.seconds_since(start) >= 0
        stream.record(Event(other)).close()
        second.synchronize()
        assert second.done
        start.close()
        end.close()
    driver.copy(block := mr.PinnedMemoryResource(driver).allocate(64), block.ptr + 32, 32, foreign)
    Stream.default(driver).synchronize()


def use_memory(driver: Driver) -> None:
    stream = Stream(driver)
    for resource in (mr.GpuMemoryResource(driver), mr.ManagedMemoryResource(driver), mr.PinnedMemoryResource(driver)):
        resource.deallocate(resource.allocate(4096))
        resource.deallocate(resource.allocate(MIB))
    pool = mr.PoolMemoryResource(mr.GpuMemoryResource(driver))
    used = pool.allocate(4096, stream)
    pool.finish_block_use(used, Stream.default(driver), "write")
    pool.deallocate(used, stream)
    pool.reap_pending()
    pool.trim()
    stream_ordered = mr.GpuAsyncMemoryResource(driver)
    stream_ordered.deallocate(stream_ordered.allocate(4096, stream), stream)
    stream_ordered.trim()
    buffer = ctypes.create_string_buffer(8192)
    driver.pin(ctypes.addressof(buffer), 8192)
    driver.unpin(ctypes.addressof(buffer), 8192)
    managed = mr.ManagedMemoryResource(driver).allocate(4096)
    driver.advise(managed.ptr, 4096, "read_mostly")
    driver.prefetch(managed.ptr, 4096, None, stream)
    stream.close()


def use_copies_and_fills(driver: Driver, other: Driver) -> None:
    stream = Stream(driver)
    left, right = (mr.GpuMemoryResource(driver).allocate(4096, stream) for _ in range(2))
    far = mr.GpuMemoryResource(other).allocate(4096)
    driver.copy(far.ptr, right.ptr, 256, stream)
    driver.copy_pitched(far.ptr, 64, right.ptr, 128, (32, 4, 1), stream)
    driver.copy(left.ptr, right.ptr, 256, stream)
    driver.copy_pitched(left.ptr, 64, right.ptr, 128, (32, 4, 1), stream)
    driver.copy_pitched(left.ptr, 64, right.ptr, 64, (32, 4, 3), stream, destination_plane=512, source_plane=512)
    for element in (1, 2, 4):
        driver.fill(left.ptr, 1, element, (64, 1, 1), stream)
        driver.fill(left.ptr, 1, element, (32, 4, 1), stream, pitch=64)
    driver.fill(left.ptr, 0x0102030405060708, 8, (256, 2, 1), stream, pitch=512)
    stream.close()


def use_virtual_memory(driver: Driver) -> None:
    size = driver.granularity()[0]
    address = driver.reserve(size)
    physical = driver.physical_create(size, exportable=True)
    driver.map(address, size, physical)
    driver.set_access(address, size, "read_write")
    fd = driver.physical_export(physical)
    driver.physical_destroy(driver.physical_import(fd))
    os.close(fd)
    driver.unmap(address, size)
    driver.physical_destroy(physical)
    driver.release(address, size)


def use_external_memory(driver: Driver) -> None:
    fd = os.memfd_create("frame")
    os.truncate(fd, 8192)
    driver.release_external(driver.import_external(fd, 8192))
    os.close(fd)


def tour(gpu: SimulatedGpu) -> None:
    """Every function of the table is called at least once, on a platform that is opened for it."""
    with Stream(gpu.drivers[0]) as theirs:
        platform: GpuPlatform = open_gpu(gpu.vendor, gpu.library)
        driver, other = platform.drivers
        driver.device_info()
        driver.memory_info()
        platform.explain(2)
        use_streams(driver, other, Foreign(theirs))
        use_memory(driver)
        use_copies_and_fills(driver, other)
        use_virtual_memory(driver)
        use_external_memory(driver)
        gone = Foreign(theirs)
        resource = mr.GpuAsyncMemoryResource(driver)
        resource.deallocate(resource.allocate(64, gone), gone)
    with pytest.raises(errors.StreamMisuse):
        resource.allocate(64, gone)  # which the driver finds out, and waits for the device
    del resource
    platform.close()


@contextmanager
def another_thread_that_lets_go(gpu: SimulatedGpu) -> Iterator[None]:
    over = threading.Event()

    def let_go() -> None:
        while not over.is_set():
            if gpu.wait_until_held(0.2):
                gpu.let_go()

    thread = threading.Thread(target=let_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture(params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory="64MiB", vendor=request.param) as gpu:
        gc.collect()
        gc.disable()  # the thread that lets go must not end what needs the driver itself
        yield gpu
        gc.enable()


def test_every_function_of_the_table_lets_another_python_thread_run(gpu: SimulatedGpu) -> None:
    with another_thread_that_lets_go(gpu):
        for function in sorted(set(gpu.platform.functions) - TEXTS):
            before = gpu.calls(function)
            gpu.hold(function)
            tour(gpu)
            assert gpu.calls(function) > before, f"no path of the test calls {function}"
            assert gpu.missed == 0, f"{function} was called with the GIL held"
    gpu.hold("")
    assert gpu.memory() == {}


FREES: dict[str, tuple[str, Callable[[Driver], mr.DeviceMemoryResource]]] = {
    "cuMemFree": ("cuda", mr.GpuMemoryResource),
    "cuMemFreeHost": ("cuda", mr.PinnedMemoryResource),
    "hipFree": ("rocm", mr.GpuMemoryResource),
    "hipHostFree": ("rocm", mr.PinnedMemoryResource),
}


def let_go_once(gpu: SimulatedGpu) -> None:
    gpu.wait_until_held(10)
    gpu.let_go()


@pytest.mark.parametrize("function", FREES)
def test_a_free_that_waits_for_work_in_python_returns(function: str) -> None:
    vendor, make = FREES[function]
    with simulated_gpu(memory="64MiB", vendor=vendor) as gpu, Stream(gpu.drivers[0]) as stream:
        resource = make(gpu.drivers[0])
        block = resource.allocate(4096)
        gpu.hold(function)
        stream.launch(let_go_once, gpu)
        resource.deallocate(block)
        assert gpu.missed == 0


def test_a_thread_that_waits_for_a_resource_in_the_driver_lets_others_run() -> None:
    """One thread is in the driver with a pool of its own; a second wants that pool; this one goes on."""
    with simulated_gpu(memory="256MiB") as gpu:
        pool = mr.PoolMemoryResource(mr.GpuMemoryResource(gpu.drivers[0]))
        stream = Stream(gpu.drivers[0])
        blocks = [pool.allocate(4096, stream) for _ in range(2)]
        gpu.hold("cuEventRecord")
        uses = [
            threading.Thread(target=pool.finish_block_use, args=(block, Stream.default(gpu.drivers[0]), "write"))
            for block in blocks
        ]
        for thread in uses:
            thread.start()
        assert gpu.wait_until_held(10)
        assert pool.bytes_outstanding == 8192  # nobody waits for who is in the driver
        gpu.hold("")
        for thread in uses:
            thread.join()
        assert gpu.missed == 0
        for block in blocks:
            pool.deallocate(block, stream)
        stream.close()


def test_threads_that_map_and_unmap_at_once_meet_no_half_made_mapping() -> None:
    with simulated_gpu(memory="256MiB") as gpu:
        driver = gpu.drivers[0]
        size = driver.granularity()[0]
        address, physical = driver.reserve(size), driver.physical_create(size)
        driver.map(address, size, physical)
        driver.set_access(address, size, "read_write")
        gpu.hold("cuMemUnmap")
        first = threading.Thread(target=driver.unmap, args=(address, size))
        first.start()
        assert gpu.wait_until_held(10)
        with pytest.raises(errors.NotMapped):
            driver.unmap(address, size)
        with pytest.raises(errors.AlreadyMapped):
            driver.map(address, size, physical)
        with pytest.raises(errors.StillMapped):
            driver.release(address, size)
        gpu.let_go()
        first.join()
        gpu.hold("")
        with suppress(errors.NotMapped):
            driver.unmap(address, size)
        driver.physical_destroy(physical)
        driver.release(address, size)
