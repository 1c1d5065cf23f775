"""The suite of virtual memory on simulated GPUs of both vendors."""

from collections.abc import Iterator

import pytest

from tensormem.testing import SimulatedGpu, simulated_gpu
from tensormem.testing.virtual_memory import VirtualMemoryConformance
from tensormem.vmm import VirtualMemoryManager


class TestCudaVirtualMemory(VirtualMemoryConformance):
    vendor = "cuda"

    @pytest.fixture(autouse=True)
    def machine(self) -> Iterator[SimulatedGpu]:
        with simulated_gpu(devices=2, memory="512MiB", vendor=self.vendor, strict=False) as gpu:
            yield gpu
        assert gpu.leaks == {}

    def make(self) -> VirtualMemoryManager:
        return VirtualMemoryManager(f"{self.vendor}:1")


class TestRocmVirtualMemory(TestCudaVirtualMemory):
    vendor = "rocm"
