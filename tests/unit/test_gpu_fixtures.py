"""The pytest fixtures that ship with tensormem."""

from tensormem import mr
from tensormem.testing import SimulatedGpu
from tensormem.testing.fixtures import simulated_cuda, simulated_rocm

__all__ = ["simulated_cuda", "simulated_rocm"]


def test_both_vendors_can_be_had_in_one_test(simulated_cuda: SimulatedGpu, simulated_rocm: SimulatedGpu) -> None:
    for gpu in (simulated_cuda, simulated_rocm):
        resource = mr.GpuMemoryResource(gpu.drivers[1])
        resource.deallocate(resource.allocate("1MiB"))
        assert gpu.memory() == {}
