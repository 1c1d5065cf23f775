"""Advice about managed memory: both forms of CUDA's call and HIP's, what it refuses, and that it can be taken back."""

from collections.abc import Iterator

import pytest

from tensormem import drivers, errors, mr
from tensormem.testing import SimulatedGpu, simulated_gpu

HOST = -1


@pytest.fixture(params=[("cuda", 13000), ("cuda", 12010), ("rocm", 13000)], ids=["cuda", "cuda 12.1", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    vendor, version = request.param
    with simulated_gpu(memory="64MiB", vendor=vendor, version=version) as gpu:
        yield gpu


def test_advice_is_given_and_taken_back(gpu: SimulatedGpu) -> None:
    managed = mr.ManagedMemoryResource(gpu.drivers[1])
    block = managed.allocate(1 << 16)
    managed.advise(block, "read_mostly")
    managed.advise(block, "preferred_location")
    for device in (HOST, 0, 1):
        managed.advise(block, "accessed_by", device)
    said = ["read_mostly", "preferred_location=1", "accessed_by=host", "accessed_by=0", "accessed_by=1"]
    assert gpu.advice(block.ptr) == said
    managed.advise(block, "preferred_location", HOST)
    assert "preferred_location=host" in gpu.advice(block.ptr + 100)
    for advice in ("read_mostly", "preferred_location"):
        managed.advise(block, advice, unset=True)
    managed.advise(block, "accessed_by", 0, unset=True)
    assert gpu.advice(block.ptr) == ["accessed_by=host", "accessed_by=1"]
    managed.deallocate(block)


def test_advice_and_prefetching_go_by_address_too(gpu: SimulatedGpu) -> None:
    driver = gpu.drivers[0]
    block = mr.ManagedMemoryResource(driver).allocate(8192)
    driver.advise(block.ptr + 4096, 4096, "accessed_by", 1)
    driver.prefetch(block.ptr, 8192, HOST)
    driver.prefetch(block.ptr, 8192)
    assert gpu.advice(block.ptr) == ["accessed_by=1"]


def test_wrong_advice_is_refused_and_changes_nothing(gpu: SimulatedGpu) -> None:
    driver = gpu.drivers[0]
    managed, plain = mr.ManagedMemoryResource(driver), mr.GpuMemoryResource(driver)
    block, other = managed.allocate(4096), plain.allocate(4096)
    with pytest.raises(errors.InvalidArgument, match="read_mostly"):
        managed.advise(block, "read_rarely")
    with pytest.raises(errors.InvalidArgument, match="not one of this resource"):
        managed.advise(other, "read_mostly")
    for device in (2, -2):
        with pytest.raises(errors.InvalidArgument, match="no device"):
            managed.advise(block, "accessed_by", device)
    for address, nbytes in ((other.ptr, 16), (block.ptr, 1 << 20)):
        with pytest.raises(errors.DriverError) as caught:
            driver.advise(address, nbytes, "read_mostly")
        assert caught.value.call == ("cuMemAdvise" if gpu.vendor == "cuda" else "hipMemAdvise")
    with pytest.raises(errors.InvalidSize):
        driver.advise(block.ptr, 0, "read_mostly")
    gpu.fail(caught.value.call, 1, 999)
    with pytest.raises(errors.DriverError):
        managed.advise(block, "read_mostly")
    assert gpu.advice(block.ptr) == []


@pytest.mark.parametrize(("vendor", "function"), [("cuda", "cuMemAdvise"), ("rocm", "hipMemAdvise")])
def test_drivers_that_take_no_advice_say_so(vendor: str, function: str) -> None:
    with simulated_gpu(memory="64MiB", vendor=vendor, without=[function]) as gpu:
        managed = mr.ManagedMemoryResource(gpu.drivers[0])
        block = managed.allocate(64)
        with pytest.raises(errors.NotSupported, match=function):
            managed.advise(block, "read_mostly")
    with pytest.raises(errors.NotSupported):
        drivers.host().advise(4096, 64, "read_mostly")
