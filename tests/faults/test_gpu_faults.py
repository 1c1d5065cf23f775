"""For every k the k-th call of the GPU's driver fails: a clear error, every count adds up, and nothing leaks."""

import gc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

import pytest

from tensormem import drivers, errors, mr
from tensormem.streams import Event, Stream
from tensormem.testing import SimulatedGpu, simulated_gpu

MIB = 1 << 20
OUT_OF_MEMORY, INVALID_HANDLE, UNKNOWN = 2, 400, 999

Make = Callable[[str], mr.DeviceMemoryResource]

STACKS: dict[str, Make] = {
    "plain": lambda device: mr.GpuMemoryResource(device),
    "stream-ordered": lambda device: mr.GpuAsyncMemoryResource(device),
    "managed": lambda device: mr.ManagedMemoryResource(device),
    "pool over plain": lambda device: mr.PoolMemoryResource(mr.GpuMemoryResource(device)),
    "pool over stream-ordered": lambda device: mr.PoolMemoryResource(mr.GpuAsyncMemoryResource(device)),
    "pool that keeps nothing": lambda device: mr.PoolMemoryResource(
        mr.GpuAsyncMemoryResource(device), release_threshold=0
    ),
}


def use(resource: mr.DeviceMemoryResource) -> None:
    """Blocks of several sizes and alignments, used on two streams, given back and dropped."""
    with Stream(resource.driver) as first, Stream(resource.driver) as second:
        small, strict = resource.allocate(1000, first), resource.allocate(100_000, alignment=8192)
        large = resource.allocate(3 * MIB, first)
        with resource.launch(second) as launched:
            launched.read(small)
            launched.write(large)
        resource.driver.fill(large.ptr, 0, 1, (3 * MIB, 1, 1), second)
        resource.deallocate(small, first)
        resource.deallocate(large, second)
        del strict
        second.synchronize()


def run(make: Make, device: str) -> None:
    resource = make(device)
    use(resource)
    resource.reap_pending()


def settle(gpu: SimulatedGpu) -> None:
    """What a failure left for later is done now."""
    gc.collect()
    for driver in gpu.drivers:
        Event(driver).close()


def run_with_failure(make: Make, vendor: str, nth: int) -> bool:
    """Use a stack while the `nth` call fails; False when there are not so many. What a call left behind is an error."""
    with simulated_gpu(memory="64MiB", vendor=vendor, strict=False) as gpu:
        gpu.fail("*", nth, OUT_OF_MEMORY if nth % 2 else UNKNOWN)
        with suppress(errors.TensormemError):
            run(make, f"{vendor}:1")
        fired = gpu.has_failed
        gpu.clear_plan()
        settle(gpu)
        left = {name: count for name, count in gpu.report().items() if count and name != "contexts"}
        left["events"] -= len(gpu.drivers)  # which watch over the devices
    assert left == {"events": 0}, f"call {nth} failed and left {left}"
    return fired


@pytest.mark.parametrize(
    ("vendor", "stack"),
    [*(("cuda", stack) for stack in STACKS), ("rocm", "plain"), ("rocm", "pool over stream-ordered")],
)
def test_no_failing_driver_call_leaks_or_crashes(vendor: str, stack: str) -> None:
    # How many calls there are depends on how far the streams have come, so the end is when no call is left to fail.
    failed = next(nth for nth in count(1) if not run_with_failure(STACKS[stack], vendor, nth)) - 1
    assert failed > 80


def map_one_page() -> None:
    driver = drivers.get("cuda:0")
    address = driver.reserve(2 * MIB)
    try:
        handle = driver.physical_create(2 * MIB, exportable=True)
        try:
            driver.map(address, 2 * MIB, handle)
            try:
                driver.set_access(address, 2 * MIB, "read_write")
                driver.fill(address, 7, 1, (2 * MIB, 1, 1))
                Stream.default(driver).synchronize()
            finally:
                driver.unmap(address, 2 * MIB)
        finally:
            driver.physical_destroy(handle)
    finally:
        driver.release(address, 2 * MIB)


@pytest.mark.parametrize(
    "function",
    ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemsetD8Async", "cuStreamSynchronize"],
)
def test_a_mapping_that_cannot_be_finished_is_undone(function: str) -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        gpu.fail(function, 1, INVALID_HANDLE)
        with pytest.raises(errors.DriverError) as caught:
            map_one_page()
        assert (caught.value.call, caught.value.code, caught.value.driver) == (function, INVALID_HANDLE, "cuda")
        assert gpu.memory() == {}
        map_one_page()
        assert gpu.memory() == {}


@pytest.mark.parametrize("function", ["cuMemUnmap", "cuMemRelease", "cuMemAddressFree"])
def test_memory_that_the_driver_does_not_take_back_can_be_given_back_again(function: str) -> None:
    with simulated_gpu(memory="64MiB") as gpu:
        driver = drivers.get("cuda:0")
        address, handle = driver.reserve(2 * MIB), driver.physical_create(2 * MIB)
        driver.map(address, 2 * MIB, handle)
        gpu.fail(function, 1, UNKNOWN)
        failures = 0
        calls = [
            partial(driver.unmap, address, 2 * MIB),
            partial(driver.physical_destroy, handle),
            partial(driver.release, address, 2 * MIB),
        ]
        for call in calls:
            try:
                call()
            except errors.DriverError:
                failures += 1
                call()
        assert failures == 1 and gpu.memory() == {}
