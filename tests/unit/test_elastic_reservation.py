"""How many addresses an elastic resource takes: by its device's memory, fewer where there are not so many."""

import subprocess
import sys

import pytest

from tensormem import errors, mr
from tensormem.testing import simulated_gpu

GIB = 2**30


@pytest.mark.parametrize("vendor", ["cuda", "rocm"])
def test_a_small_device_reserves_far_less_than_a_tebibyte(vendor: str) -> None:
    with simulated_gpu(devices=1, memory="256MiB", vendor=vendor):
        assert mr.ElasticMemoryResource(f"{vendor}:0").capacity == 64 * GIB


@pytest.mark.parametrize("result", [1, 2], ids=["invalid", "out of memory"])
def test_a_reservation_that_is_refused_is_tried_with_half(result: int) -> None:
    with simulated_gpu(devices=1, memory="256MiB") as gpu:
        gpu.fail("cuMemAddressReserve", result=result)
        elastic = mr.ElasticMemoryResource("cuda:0")
        assert gpu.has_failed and elastic.capacity == 32 * GIB
        elastic.deallocate(elastic.allocate("4MiB"))


def test_an_explicit_capacity_is_never_made_smaller() -> None:
    with simulated_gpu(devices=1, memory="256MiB") as gpu:
        gpu.fail("cuMemAddressReserve")
        with pytest.raises(errors.OutOfVirtualMemory):
            mr.ElasticMemoryResource("cuda:0", capacity="64GiB")
        assert mr.ElasticMemoryResource("cuda:0", capacity="64GiB").capacity == 64 * GIB


@pytest.mark.parametrize("capacity", [0, 2**63, 2**64 - 1])
def test_a_capacity_that_cannot_be_is_refused(capacity: int) -> None:
    with pytest.raises(errors.InvalidSize):
        mr.ElasticMemoryResource(capacity=capacity)


def test_a_limit_on_addresses_makes_the_reservation_smaller() -> None:
    code = (
        "import resource, tensormem as tm; total = tm.drivers.host().memory_info()[1];"
        "resource.setrlimit(resource.RLIMIT_AS, (3 * total, 3 * total));"
        "mr = tm.mr.ElasticMemoryResource(); mr.deallocate(mr.allocate('4MiB'));"
        "print(total <= mr.capacity <= 3 * total)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
