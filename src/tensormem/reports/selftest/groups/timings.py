"""Owns: how long calls take through tensormem and by the driver's bare calls: the best of several rounds.

Must not know: what is fast enough.
"""

from __future__ import annotations

import ctypes
from time import perf_counter

from tensormem import mr
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.outcome import Measurement
from tensormem.reports.selftest.promise import NotOffered
from tensormem.streams import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tensormem.reports.selftest.subject import Subject

GROUP = Group("timings", "What calls take", gpu_only=False)
_ROUNDS = 5
_MIB = 1 << 20


@GROUP.check
def plain(subject: Subject) -> None:
    """Plain memory is allocated and freed."""
    resource = subject.leaf()
    ours = _best(lambda: resource.deallocate(resource.allocate(_MIB)), 20)
    bare = None
    if subject.platform is not None:
        driver = subject.bare
        bare = _best(lambda: driver.call("free", driver.allocate(_MIB)), 20)
    subject.note(Measurement("allocate and free 1 MiB, driver", ours, bare))


@GROUP.check
def pool(subject: Subject) -> None:
    """A pool allocates and frees."""
    resource = mr.PoolMemoryResource(subject.leaf())
    subject.note(
        Measurement("allocate and free 1 MiB, pool", _best(lambda: resource.deallocate(resource.allocate(_MIB)), 2000))
    )


@GROUP.check
def stream_ordered(subject: Subject) -> None:
    """Stream-ordered memory is allocated and freed."""
    if subject.platform is None or not subject.can("memory_pools"):
        raise NotOffered("the device has no memory pools")
    resource, driver = mr.GpuAsyncMemoryResource(subject.driver), subject.bare
    with Stream(subject.driver) as stream:
        handle = stream.handle

        def bare() -> None:
            driver.call("free_async", driver.allocate_async(_MIB, handle), ctypes.c_void_p(handle))

        ours = _best(lambda: resource.deallocate(resource.allocate(_MIB, stream), stream), 200)
        subject.note(Measurement("allocate and free 1 MiB, stream-ordered", ours, _best(bare, 200)))


@GROUP.check
def page(subject: Subject) -> None:
    """A page is created, mapped and opened."""
    if not subject.can("virtual_memory"):
        raise NotOffered("the device has no virtual memory")
    driver = subject.driver
    size = driver.granularity()[1]
    address = driver.reserve(size)

    def work() -> None:
        page = driver.physical_create(size)
        driver.map(address, size, page)
        driver.set_access(address, size, "read_write")
        driver.unmap(address, size)
        driver.physical_destroy(page)

    try:
        subject.note(Measurement("create, map and open one page", _best(work, 20)))
    finally:
        driver.release(address, size)


@GROUP.check
def copy(subject: Subject) -> None:
    """A mebibyte is copied to the device."""
    resource, source = subject.leaf(), ctypes.create_string_buffer(_MIB)
    block = resource.allocate(_MIB)
    with Stream(subject.driver) as stream:

        def work() -> None:
            subject.driver.copy(block.ptr, ctypes.addressof(source), _MIB, stream)
            stream.synchronize()

        subject.note(Measurement("copy 1 MiB to the device and wait", _best(work, 20)))


def _best(work: Callable[[], object], count: int) -> float:
    work()  # once, to warm up

    def one_round() -> float:
        start = perf_counter()
        for _ in range(count):
            work()
        return (perf_counter() - start) / count * 1e6

    return min(one_round() for _ in range(_ROUNDS))
