"""Owns: pytest fixtures that switch a simulated GPU on for one test; import them into a conftest.py.

Must not know: what is being tested.
"""

from collections.abc import Iterator

import pytest

from tensormem.testing.gpus import SimulatedGpu, simulated_gpu

__all__ = ["simulated_cuda", "simulated_rocm"]


@pytest.fixture
def simulated_cuda() -> Iterator[SimulatedGpu]:
    """Two simulated CUDA devices of 1 GiB."""
    with simulated_gpu() as gpu:
        yield gpu


@pytest.fixture
def simulated_rocm() -> Iterator[SimulatedGpu]:
    """Two simulated ROCm devices of 1 GiB."""
    with simulated_gpu(vendor="rocm") as gpu:
        yield gpu
