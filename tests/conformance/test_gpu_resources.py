"""The resource suite on simulated GPUs of both vendors: leaves, and pools and adaptors on top of them."""

from collections.abc import Iterator

import pytest

from tensormem import mr
from tensormem.testing import SimulatedGpu, simulated_gpu
from tensormem.testing.resources import ResourceConformance


class OnSimulatedGpu(ResourceConformance):
    """Every test has a machine of its own, and works on the second of its devices."""

    vendor = "cuda"
    host_accessible = False
    on_the_host = False

    @pytest.fixture(autouse=True)
    def machine(self) -> Iterator[SimulatedGpu]:
        with simulated_gpu(devices=2, memory="256MiB", vendor=self.vendor) as gpu:
            yield gpu

    @property
    def device(self) -> str:
        return f"{self.vendor}:1"


class TestGpuMemoryResource(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.GpuMemoryResource(self.device)


class TestGpuAsyncMemoryResource(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.GpuAsyncMemoryResource(self.device)


class TestManagedMemoryResource(OnSimulatedGpu):
    host_accessible = True

    def make(self) -> mr.DeviceMemoryResource:
        return mr.ManagedMemoryResource(self.device)


class TestPinnedMemoryResourceOfAGpu(OnSimulatedGpu):
    host_accessible = True

    def make(self) -> mr.DeviceMemoryResource:
        return mr.PinnedMemoryResource(self.device)


class TestPoolOverGpuMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.GpuMemoryResource(self.device))


class TestPoolOverStreamOrderedMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.GpuAsyncMemoryResource(self.device))


class TestPoolOverStreamOrderedMemoryThatKeepsNothing(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.PoolMemoryResource(mr.GpuAsyncMemoryResource(self.device), release_threshold=0)


class TestArenaOverGpuMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.ArenaMemoryResource(mr.GpuMemoryResource(self.device), "192MiB")


class TestBinningOverGpuMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.BinningMemoryResource(mr.PoolMemoryResource(mr.GpuMemoryResource(self.device)), 8, 18)


class TestLimitingOverStreamOrderedMemory(OnSimulatedGpu):
    def make(self) -> mr.DeviceMemoryResource:
        return mr.LimitingResourceAdaptor(mr.GpuAsyncMemoryResource(self.device), "128MiB")


class TestStatisticsOverManagedMemory(OnSimulatedGpu):
    host_accessible = True

    def make(self) -> mr.DeviceMemoryResource:
        return mr.StatisticsResourceAdaptor(mr.ManagedMemoryResource(self.device))


class TestGpuMemoryResourceOnRocm(TestGpuMemoryResource):
    vendor = "rocm"


class TestGpuAsyncMemoryResourceOnRocm(TestGpuAsyncMemoryResource):
    vendor = "rocm"


class TestManagedMemoryResourceOnRocm(TestManagedMemoryResource):
    vendor = "rocm"


class TestPinnedMemoryResourceOfAGpuOnRocm(TestPinnedMemoryResourceOfAGpu):
    vendor = "rocm"


class TestPoolOverGpuMemoryOnRocm(TestPoolOverGpuMemory):
    vendor = "rocm"


class TestPoolOverStreamOrderedMemoryOnRocm(TestPoolOverStreamOrderedMemory):
    vendor = "rocm"
