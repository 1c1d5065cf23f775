"""Allocating DMA-BUFs: which heap, which limits, and what is said when it cannot be."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tensormem as tm
from tensormem import errors
from tensormem.memories import dma, is_available
from tensormem.memories.dma import heaps
from vm.guest.kernel_view import live_buffers, open_descriptors

HEAP = Path("/dev/dma_heap/system")
LIMIT = Path("/sys/module/udmabuf/parameters/size_limit_mb")


@contextmanager
def nobody() -> Iterator[None]:
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def no_new_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_heaps_are_listed_and_chosen_by_name() -> None:
    assert dma.list_heaps() == ["system"]
    storage = dma.allocate(100, heap="system")
    assert (storage.owner.exporter, storage.reason) == ("system", "heap system was asked for")
    assert (storage.nbytes, storage.owner.nbytes) == (100, 4096)
    other = dma.allocate(100, heap="udmabuf")
    assert (other.owner.exporter, other.reason) == ("udmabuf", "udmabuf was asked for")


def test_an_unknown_heap_is_refused_with_those_there_are() -> None:
    before = open_descriptors()
    for wrong in ("linux,cma", "../null", "", "System"):
        with pytest.raises(errors.MemoryUnavailable, match="this machine has system"):
            dma.allocate(100, heap=wrong)
    assert open_descriptors() == before


def test_without_a_choice_a_heap_comes_first_and_a_use_finds_it() -> None:
    assert is_available("dma") and dma.why_not() is None
    tensor = tm.zeros((3, 4), memory="dma")
    assert tensor.memory == "dma" and tensor.storage.owner.exporter == "system"
    assert tensor.memory_reason == "heap system is the first that works here"
    assert tm.zeros(4, use="gpu").memory == "dma"


def test_new_memory_is_zero_and_begins_with_a_page() -> None:
    for heap in ("system", "udmabuf"):
        storage = dma.allocate(70_000, heap=heap, alignment=4096)
        assert storage.ptr % 4096 == 0
        with storage.map("r") as mapped:
            assert bytes(mapped) == bytes(70_000)


def test_udmabuf_says_its_limit_when_it_is_reached() -> None:
    assert dma.allocate("64MiB", heap="udmabuf").nbytes == 64 << 20
    with pytest.raises(errors.MemoryUnavailable, match=r"64 MiB that udmabuf gives one buffer.*size_limit_mb"):
        dma.allocate((64 << 20) + 1, heap="udmabuf")
    LIMIT.write_text("1")
    try:
        with pytest.raises(errors.MemoryUnavailable, match="1 MiB that udmabuf gives"):
            dma.allocate("2MiB", heap="udmabuf")
    finally:
        LIMIT.write_text("64")


def test_a_heap_that_was_chosen_is_never_replaced() -> None:
    live, fds = live_buffers(), open_descriptors()
    for size in (1 << 50, heaps.memory_left() + (64 << 20)):
        with pytest.raises(errors.OutOfMemory, match="heap system") as caught:
            dma.allocate(size, heap="system")
        assert caught.value.total_free < size
    with pytest.raises(errors.MemoryUnavailable, match=r"heap system.*udmabuf gives one buffer"):
        dma.allocate(1 << 50)
    assert tm.empty(1 << 20, "uint8", memory="dma").memory == "dma"
    assert (live_buffers(), open_descriptors()) == (live, fds)


def test_impossible_requests_are_refused_before_anything_happens() -> None:
    live = live_buffers()
    with pytest.raises(errors.InvalidSize):
        dma.allocate(0)
    with pytest.raises(errors.MemoryUnavailable, match="in main memory"):
        dma.allocate(64, tm.pinned)
    for wrong in (3, 0, -4096, 8192):
        with pytest.raises(errors.InvalidAlignment):
            dma.allocate(64, alignment=wrong)
    for name in ("", "x" * 32, "two\nlines"):
        with pytest.raises(errors.InvalidArgument, match="name"):
            dma.allocate(64, name=name)
    assert live_buffers() == live


def test_who_may_not_is_told_whose_the_devices_are_and_which_group_to_join() -> None:
    with nobody():
        reason = dma.why_not()
        assert reason is not None and "/dev/dma_heap/system (mode 0600)" in reason and "udev rule" in reason
        with pytest.raises(errors.MemoryUnavailable, match="/dev/dma_heap/system"):
            tm.zeros(4, memory="dma")
        with pytest.raises(errors.MemoryUnavailable, match="mode 0600"):
            dma.allocate(4, heap="system")
        assert not is_available("dma")
    before = HEAP.stat()
    os.chown(HEAP, 0, 44)
    HEAP.chmod(0o660)
    try:
        with nobody():
            assert "usermod -aG 44 USER" in (dma.why_not() or "")
    finally:
        HEAP.chmod(before.st_mode)
        os.chown(HEAP, before.st_uid, before.st_gid)


def test_a_use_falls_through_with_the_reasons_when_the_devices_are_closed() -> None:
    is_available("pbo")  # loaded now: nobody may not read where the code is
    with nobody():
        tensor = tm.zeros(4, use="gpu")
    assert tensor.memory != "dma" and "no dma: /dev/dma_heap/system (mode 0600)" in tensor.memory_reason


def test_without_descriptors_the_error_says_so_and_nothing_is_lost() -> None:
    kept = dma.allocate(64)
    live, fds = live_buffers(), open_descriptors()
    with no_new_descriptors():
        for heap in (None, "system", "udmabuf"):
            with pytest.raises(errors.DriverError) as caught:
                dma.allocate(64, heap=heap)
            assert caught.value.name == "EMFILE"
        with pytest.raises(errors.DriverError):
            kept.owner.export_fd()
        with pytest.raises(errors.DriverError):
            kept.owner.export_sync_file()
    assert (live_buffers(), open_descriptors()) == (live, fds)
    assert tm.Tensor(kept, "uint8", 64).tolist() == [0] * 64
