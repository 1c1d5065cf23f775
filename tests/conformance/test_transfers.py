"""The suite of transfers: on the host, and on simulated GPUs of both vendors."""

from collections.abc import Iterator

import pytest

from tensormem.streams import Stream
from tensormem.testing import SimulatedGpu, simulated_gpu
from tensormem.testing.transfers import TransferConformance


class TestHost(TransferConformance):
    spaces = ("main", "pinned")


class OnSimulatedGpus(TransferConformance):
    """Every test has a machine of its own, and leaves nothing behind on it."""

    spaces = ("main", "pinned", "managed", "gpu:0", "gpu:1")
    vendor = "cuda"

    @pytest.fixture(autouse=True)
    def machine(self) -> Iterator[SimulatedGpu]:
        with simulated_gpu(devices=2, memory="256MiB", vendor=self.vendor) as gpu:
            self.gpu = gpu
            yield gpu
        del self.gpu
        assert gpu.leaks == {}

    def make_stream(self) -> Stream:
        return Stream(self.gpu.drivers[0])


class TestCuda(OnSimulatedGpus):
    pass


class TestRocm(OnSimulatedGpus):
    vendor = "rocm"
