"""Owns: what a device has to pass: the resource suite on each kind of its memory, and its streams, copies and pages.

Run by `tensormem selftest`; with pytest itself: `pytest -p tensormem.testing.device_plugin --device cuda:0 --pyargs
tensormem.testing.device_suite`. Must not know: which device it is.
"""

import ctypes

import pytest

from tensormem import errors, mr
from tensormem._core import Driver
from tensormem.streams import Stream
from tensormem.testing.device_plugin import driver_under_test, is_gpu_under_test
from tensormem.testing.resources import Gate, ResourceConformance
from tensormem.vmm import VirtualMemoryManager

__all__ = [
    "TestAsyncMemory",
    "TestManagedMemory",
    "TestPinnedMemory",
    "TestPlainMemory",
    "TestPool",
    "TestPoolOverAsyncMemory",
]

_MIB = 1 << 20
_ON_GPU = is_gpu_under_test()  # the device is named before the suite is collected


def _on_gpu() -> Driver:
    driver = driver_under_test()
    if driver.name == "host":
        pytest.skip("the host has no GPU memory")
    return driver


def _with_pools() -> Driver:
    driver = _on_gpu()
    if not driver.device_info()["memory_pools"]:
        pytest.skip("the device has no memory pools")
    return driver


class TestPlainMemory(ResourceConformance):
    """Memory straight from the driver."""

    host_accessible = on_the_host = not _ON_GPU

    def make(self) -> mr.DeviceMemoryResource:
        driver = driver_under_test()
        return mr.HostMemoryResource() if driver.name == "host" else mr.GpuMemoryResource(driver)


class TestPinnedMemory(ResourceConformance):
    """Host memory that the driver has pinned."""

    on_the_host = not _ON_GPU

    def make(self) -> mr.DeviceMemoryResource:
        driver = driver_under_test()
        return mr.PinnedMemoryResource(None if driver.name == "host" else driver)


class TestManagedMemory(ResourceConformance):
    """Memory that moves by itself."""

    on_the_host = False

    def make(self) -> mr.DeviceMemoryResource:
        driver = _on_gpu()
        if not driver.device_info()["managed_memory"]:
            pytest.skip("the device has no managed memory")
        return mr.ManagedMemoryResource(driver)


class TestAsyncMemory(ResourceConformance):
    """Memory in the order of a stream."""

    host_accessible = on_the_host = False

    def make(self) -> mr.DeviceMemoryResource:
        return mr.GpuAsyncMemoryResource(_with_pools())


class TestPool(ResourceConformance):
    """A pool over plain memory."""

    host_accessible = on_the_host = not _ON_GPU

    def make(self) -> mr.DeviceMemoryResource:
        driver = driver_under_test()
        upstream = mr.HostMemoryResource() if driver.name == "host" else mr.GpuMemoryResource(driver)
        return mr.PoolMemoryResource(upstream)


class TestPoolOverAsyncMemory(ResourceConformance):
    """A pool over memory in the order of a stream."""

    host_accessible = on_the_host = False

    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.GpuAsyncMemoryResource(_with_pools()))


def test_bytes_come_back_as_they_went() -> None:
    """A copy to the device and one back."""
    resource = TestPlainMemory().make()
    sent, got = ctypes.create_string_buffer(bytes(range(256)) * 4096), ctypes.create_string_buffer(_MIB)
    block = resource.allocate(_MIB)
    with Stream(resource.driver) as stream:
        resource.driver.copy(block.ptr, ctypes.addressof(sent), _MIB, stream)
        resource.driver.copy(ctypes.addressof(got), block.ptr, _MIB, stream)
        stream.synchronize()
    assert got.raw == sent.raw[:_MIB]
    resource.deallocate(block)


@pytest.mark.parametrize(("element", "value"), [(1, 0xAB), (2, 0x1234), (4, 0xDEADBEEF), (8, 0x0102030405060708)])
def test_boxes_are_filled_and_copied_row_by_row(element: int, value: int) -> None:
    """A fill of three planes of five rows, copied back as a box."""
    resource = TestPlainMemory().make()
    block, got = resource.allocate(65536), ctypes.create_string_buffer(65536)
    driver = resource.driver
    driver.fill(block.ptr, 0, 1, (65536, 1, 1))
    driver.fill(block.ptr, value, element, (48, 5, 3), pitch=64, plane=1024)
    driver.copy_pitched(
        ctypes.addressof(got), 128, block.ptr, 64, (64, 5, 3), destination_plane=4096, source_plane=1024
    )
    Stream.default(driver).synchronize()
    for start in (plane * 4096 + row * 128 for plane in range(3) for row in range(5)):
        assert got.raw[start : start + 64] == value.to_bytes(element, "little") * (48 // element) + bytes(16)
    resource.deallocate(block)


def test_streams_wait_for_one_anothers_events() -> None:
    """What comes behind an event runs behind it."""
    driver, order, gate = driver_under_test(), list[str](), Gate()
    with Stream(driver) as first, Stream(driver) as second:
        gate.hold(first)
        first.launch(order.append, "first")
        second.wait(first.record())
        second.launch(order.append, "second")
        gate.open()
        second.synchronize()
    assert order == ["first", "second"]


def test_pages_are_mapped_shared_and_taken_down() -> None:
    """One page behind two addresses, by its exported descriptor."""
    driver = driver_under_test()
    if not driver.device_info()["virtual_memory"]:
        pytest.skip("the device has no virtual memory management")
    size = driver.granularity()[1]
    got = ctypes.create_string_buffer(size)
    with VirtualMemoryManager(driver) as vmm:
        va = vmm.reserve(2 * size)
        first = vmm.map(va, vmm.alloc_physical(size), 0, access="read_write")
        driver.fill(first.address, 0x5A, 1, (size, 1, 1))
        driver.copy(ctypes.addressof(got), first.address, size)
        Stream.default(driver).synchronize()
    assert got.raw == b"\x5a" * size


def test_more_memory_than_there_is_is_refused_with_the_facts() -> None:
    """And the device works afterwards."""
    resource = TestPlainMemory().make()
    with pytest.raises(errors.OutOfMemory) as caught:
        resource.allocate(1 << 50)
    assert caught.value.requested == 1 << 50
    resource.deallocate(resource.allocate(_MIB))
