"""The resource suite on a simulated GPU: leaves, and pools and adaptors on top of them."""

from collections.abc import Iterator

import pytest

from tensormem import mr
from tensormem.testing import SimulatedGpu, simulated_gpu
from tensormem.testing.resources import ResourceConformance


class OnSimulatedGpu(ResourceConformance):
    """Every test has a machine of its own, and works on the second of its devices."""

    @pytest.fixture(autouse=True)
    def machine(self) -> Iterator[SimulatedGpu]:
        with simulated_gpu(devices=2, memory="256MiB") as gpu:
            yield gpu


class TestGpuMemoryResource(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.GpuMemoryResource("cuda:1")


class TestGpuAsyncMemoryResource(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.GpuAsyncMemoryResource("cuda:1")


class TestManagedMemoryResource(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.ManagedMemoryResource("cuda:1")


class TestPinnedMemoryResourceOfAGpu(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PinnedMemoryResource("cuda:1")


class TestPoolOverGpuMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.GpuMemoryResource("cuda:1"))


class TestPoolOverStreamOrderedMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.GpuAsyncMemoryResource("cuda:1"))


class TestPoolOverStreamOrderedMemoryThatKeepsNothing(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.GpuAsyncMemoryResource("cuda:1"), release_threshold=0)


class TestArenaOverGpuMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.ArenaMemoryResource(mr.GpuMemoryResource("cuda:1"), "192MiB")


class TestBinningOverGpuMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.BinningMemoryResource(mr.PoolMemoryResource(mr.GpuMemoryResource("cuda:1")), 8, 18)


class TestLimitingOverStreamOrderedMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.LimitingResourceAdaptor(mr.GpuAsyncMemoryResource("cuda:1"), "128MiB")


class TestStatisticsOverManagedMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.StatisticsResourceAdaptor(mr.ManagedMemoryResource("cuda:1"))
