"""The suite of elastic pools, and of resources over them, on simulated GPUs of both vendors."""

from collections.abc import Iterator

import pytest

from tensormem import mr
from tensormem.testing import SimulatedGpu, simulated_gpu
from tensormem.testing.pools import PoolConformance
from tensormem.testing.resources import ResourceConformance


class TestCudaPool(PoolConformance):
    device = "cuda:1"

    @pytest.fixture(autouse=True)
    def machine(self) -> Iterator[SimulatedGpu]:
        vendor = self.device.partition(":")[0]
        with simulated_gpu(devices=2, memory="512MiB", vendor=vendor, strict=False) as gpu:
            yield gpu
        assert gpu.leaks == {}


class TestRocmPool(TestCudaPool):
    device = "rocm:1"


class TestElasticMemoryOnCuda(ResourceConformance):
    host_accessible = False
    on_the_host = False

    device = "cuda:1"

    @pytest.fixture(autouse=True)
    def machine(self) -> Iterator[SimulatedGpu]:
        with simulated_gpu(devices=2, memory="512MiB", vendor=self.device.partition(":")[0]) as gpu:
            yield gpu

    def make(self) -> mr.DeviceMemoryResource:
        return mr.ElasticMemoryResource(self.device, capacity="1GiB")


class TestElasticMemoryOnRocm(TestElasticMemoryOnCuda):
    device = "rocm:1"
