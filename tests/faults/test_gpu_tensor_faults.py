"""For every k the k-th call of a GPU's driver fails while tensors are copied in pieces, memory of others is imported,
or advice is given: a clear error or none, nothing leaks, and what comes after works.
"""

import os
from collections.abc import Callable
from itertools import count

import pytest

import tensormem as tm
from tensormem import errors, mr
from tensormem.streams import Event, Stream
from tensormem.testing import SimulatedGpu, simulated_gpu

OUT_OF_MEMORY, UNKNOWN = 2, 999
NBYTES = 9 << 20  # three pieces


def import_a_frame(gpu: SimulatedGpu) -> None:
    fd = os.memfd_create("frame")
    try:
        os.truncate(fd, 1 << 16)
        with tm.from_external_fd(fd, space="gpu:1") as frame:
            assert bytes(frame[:4].to("main")) == bytes(4)
    finally:
        os.close(fd)


def copy_there_and_back(gpu: SimulatedGpu) -> None:
    values = tm.full(NBYTES, 7, "uint8")
    with Stream(gpu.drivers[0]) as stream:
        back = values.to("gpu:0", stream=stream).to("main", stream=stream).wait()
        assert bytes(back[-4:]) == bytes([7] * 4)


def rearrange(gpu: SimulatedGpu) -> None:
    there = tm.full((4, 6, 8), 7, "uint8", space="gpu:0")
    assert bytes(there[::-1, ::-1, ::-1].to("main")) == bytes([7] * 192)
    assert bytes(there.permute(2, 0, 1).clone().to("main")) == bytes([7] * 192)


def advise(gpu: SimulatedGpu) -> None:
    managed = mr.ManagedMemoryResource(gpu.drivers[1])
    block = managed.allocate(4096)
    managed.advise(block, "preferred_location", -1)
    gpu.drivers[1].prefetch(block.ptr, 4096)
    Stream.default(gpu.drivers[1]).synchronize()
    managed.deallocate(block)


def run_with_failure(work: Callable[[SimulatedGpu], None], vendor: str, nth: int) -> bool:
    """Do the work while the `nth` call fails; False when there are not so many."""
    with simulated_gpu(memory="64MiB", vendor=vendor, strict=False) as gpu:
        gpu.fail("*", nth, OUT_OF_MEMORY if nth % 2 else UNKNOWN)
        try:
            work(gpu)
        except errors.TensormemError:
            assert gpu.has_failed
        fired = gpu.has_failed
        gpu.clear_plan()
        Event(gpu.drivers[0]).close()
        work(gpu)
    assert gpu.leaks == {}, f"call {nth} failed and left {gpu.leaks}"
    return fired


@pytest.mark.parametrize("vendor", ["cuda", "rocm"])
@pytest.mark.parametrize("work", [import_a_frame, copy_there_and_back, rearrange, advise])
def test_no_failing_driver_call_leaks_or_spoils_what_follows(work: Callable[[SimulatedGpu], None], vendor: str) -> None:
    before = set(os.listdir("/proc/self/fd"))
    failed = next(nth for nth in count(1) if not run_with_failure(work, vendor, nth)) - 1
    assert failed > 10
    assert set(os.listdir("/proc/self/fd")) == before
