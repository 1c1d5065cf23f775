"""Owns: how long the calls of a device take, in microseconds: the best of several rounds, for a look and a comparison.

Must not know: what is fast enough.
"""

import ctypes
from collections.abc import Callable
from time import perf_counter

from tensormem import mr
from tensormem._core import Driver, Stream

__all__ = ["measure"]

_ROUNDS = 5
_MIB = 1 << 20


def measure(driver: Driver) -> dict[str, float]:
    """Microseconds per call, by what was done."""
    timings = {"allocate and free 1 MiB, driver": _allocation(_leaf(driver), 20)}
    timings["allocate and free 1 MiB, pool"] = _allocation(mr.PoolMemoryResource(_leaf(driver)), 2000)
    if driver.name != "host":
        timings["allocate and free 1 MiB, stream-ordered"] = _allocation(mr.GpuAsyncMemoryResource(driver), 200)
    if driver.device_info()["virtual_memory"]:
        timings["create, map and open one page"] = _page(driver)
    timings["copy 1 MiB to the device and wait"] = _copy(driver)
    return timings


def _leaf(driver: Driver) -> mr.DeviceMemoryResource:
    return mr.HostMemoryResource() if driver.name == "host" else mr.GpuMemoryResource(driver)


def _best(work: Callable[[], object], count: int) -> float:
    work()  # once, to warm up

    def one_round() -> float:
        start = perf_counter()
        for _ in range(count):
            work()
        return (perf_counter() - start) / count * 1e6

    return min(one_round() for _ in range(_ROUNDS))


def _allocation(resource: mr.DeviceMemoryResource, count: int) -> float:
    return _best(lambda: resource.deallocate(resource.allocate(_MIB)), count)


def _page(driver: Driver) -> float:
    size = driver.granularity()[1]
    address = driver.reserve(size)

    def work() -> None:
        page = driver.physical_create(size)
        driver.map(address, size, page)
        driver.set_access(address, size, "read_write")
        driver.unmap(address, size)
        driver.physical_destroy(page)

    try:
        return _best(work, 20)
    finally:
        driver.release(address, size)


def _copy(driver: Driver) -> float:
    resource, source = _leaf(driver), ctypes.create_string_buffer(_MIB)
    block = resource.allocate(_MIB)
    with Stream(driver) as stream:

        def work() -> None:
            driver.copy(block.ptr, ctypes.addressof(source), _MIB, stream)
            stream.synchronize()

        return _best(work, 20)
