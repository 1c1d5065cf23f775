"""Every test of RMM's names begins and ends with the device's plain resource."""

from collections.abc import Iterator

import pytest

import tensormem as tm
from tensormem import rmm
from tensormem.testing import simulated_gpu
from tensormem.testing.gpus import SimulatedGpu


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    before = tm.mr.get_per_device_resource(0)
    rmm.reinitialize()
    yield
    rmm.reinitialize()
    tm.mr.set_per_device_resource(0, before)


@pytest.fixture
def gpu() -> Iterator[SimulatedGpu]:
    """Two simulated GPUs, of which the first is current."""
    with simulated_gpu(devices=2, memory="256MiB") as machine:
        rmm.reinitialize()
        yield machine
        rmm.reinitialize()
