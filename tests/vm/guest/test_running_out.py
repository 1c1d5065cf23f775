"""A process that runs out of descriptors after the first, the second, the third step: whatever was done is undone."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tensormem import errors
from tensormem._core import live_identities
from tensormem.memories import Storage, dma
from vm.guest.kernel_view import live_buffers, open_descriptors, raw_buffer


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """No gaps below the highest descriptor, and `count` more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    filling = [os.open("/dev/null", os.O_RDONLY)]
    while filling[-1] <= highest:
        filling.append(os.open("/dev/null", os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (filling[-1] + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in filling:
            os.close(fd)


def held() -> tuple[int, int, int]:
    return open_descriptors(), live_buffers(), live_identities()


def fails_until_there_are_enough(make: Callable[[], Storage]) -> int:
    """How many descriptors `make` needs at once; with fewer it fails, says so, and leaves nothing."""
    before = held()
    for count in range(10):
        try:
            with descriptors_left(count):
                made = make()
        except errors.DriverError as failed:
            assert failed.name == "EMFILE"
            assert held() == before
            continue
        made.close()
        assert held() == before
        return count
    raise AssertionError("ten descriptors were not enough")


def test_allocating_from_a_heap_needs_the_heap_and_the_buffer() -> None:
    assert fails_until_there_are_enough(lambda: dma.allocate(64, heap="system")) == 2
    assert fails_until_there_are_enough(lambda: dma.allocate(64, name="named")) == 2


def test_allocating_by_udmabuf_needs_the_device_the_memory_and_the_buffer() -> None:
    assert fails_until_there_are_enough(lambda: dma.allocate(64, heap="udmabuf")) == 3


def test_importing_needs_one_for_the_duplicate() -> None:
    fd = raw_buffer(4096)
    assert fails_until_there_are_enough(lambda: dma.from_fd(fd)) == 1
    with pytest.raises(errors.InvalidSize):
        dma.from_fd(fd, 4097)
    os.close(fd)
