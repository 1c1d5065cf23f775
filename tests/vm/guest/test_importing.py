"""Importing DMA-BUFs that somebody else made: what is checked, who keeps what, how the same memory is recognised."""

import mmap
import os
import socket

import pytest

import tensormem as tm
from tensormem import errors
from tensormem._core import live_identities
from tensormem.memories import dma
from vm.guest.kernel_view import live_buffers, open_descriptors, protections, raw_buffer


def test_a_foreign_buffer_is_shared_without_a_copy_and_its_maker_keeps_his_descriptor() -> None:
    fd = raw_buffer(8192)
    storage = dma.from_fd(fd)
    assert (storage.nbytes, storage.memory, storage.reason) == (8192, "dma", "imported by descriptor")
    with mmap.mmap(fd, 8192) as theirs:
        theirs[:4] = b"left"
        with storage.map("rw") as ours:
            assert bytes(memoryview(ours)[:4]) == b"left"
            memoryview(ours)[4:9] = b"right"
        assert theirs[:9] == b"leftright"
    os.close(fd)
    assert bytes(tm.Tensor(storage, "uint8", 9).tolist()) == b"leftright"


def test_a_part_from_the_start_may_be_taken() -> None:
    fd = raw_buffer(8192)
    assert dma.from_fd(fd, 100).nbytes == 100
    assert dma.from_fd(fd, "8KiB").nbytes == 8192
    for wrong in (0, -1, 8193, 2**62, 2**70, "9KiB"):
        with pytest.raises(errors.InvalidSize):
            dma.from_fd(fd, wrong)
    os.close(fd)


def test_what_is_no_dma_buf_is_refused_and_left_as_it_was() -> None:
    before = open_descriptors()
    memory = os.memfd_create("not one")
    os.ftruncate(memory, 8192)
    null = os.open("/dev/null", os.O_RDWR)
    reading, writing = os.pipe()
    left, right = socket.socketpair()
    for fd in (memory, null, reading, writing, left.fileno()):
        with pytest.raises(errors.InvalidArgument, match="is no DMA-BUF"):
            dma.from_fd(fd)
        assert not dma.is_dma_buf(fd)
        os.fstat(fd)
    for fd in (memory, null, reading, writing):
        os.close(fd)
    left.close()
    right.close()
    with pytest.raises(errors.InvalidArgument, match="is not open"):
        dma.from_fd(memory)
    for wrong in (-1, 2**31, 2**80, True, "3", None, 3.0):
        with pytest.raises(errors.InvalidArgument):
            dma.from_fd(wrong)  # type: ignore[arg-type]
    assert open_descriptors() == before


def test_a_descriptor_to_read_is_imported_to_read_and_not_otherwise() -> None:
    fd = raw_buffer(4096, os.O_RDONLY)
    before = open_descriptors()
    with pytest.raises(errors.InvalidArgument, match="readonly=True"):
        dma.from_fd(fd)
    assert open_descriptors() == before
    storage = dma.from_fd(fd, readonly=True)
    os.close(fd)
    assert storage.readonly and protections(storage.ptr) == "r--s"
    tensor = tm.Tensor(storage, "uint8", 4096)
    assert tensor.readonly and memoryview(tensor).readonly
    for mode in ("w", "rw"):
        with pytest.raises(errors.InvalidArgument):
            tensor.map(mode)
        with pytest.raises(errors.InvalidArgument):
            storage.owner.begin_access(mode)
    with tensor.map("r") as mapped:
        assert bytes(mapped) == bytes(4096)
    assert storage.owner.syncs.open == 0


def test_whoever_may_write_can_still_import_to_read() -> None:
    fd = raw_buffer(4096)
    writable, readonly = dma.from_fd(fd), dma.from_fd(fd, readonly=True)
    os.close(fd)
    with writable.map("w") as mapped:
        memoryview(mapped)[0] = 9
    assert memoryview(tm.Tensor(readonly, "uint8", 1))[0] == 9
    assert protections(readonly.ptr) == "r--s" and readonly.aliases(writable)


def test_duplicates_and_further_imports_are_the_same_memory() -> None:
    fd = raw_buffer(4096)
    first = dma.from_fd(fd)
    duplicate = os.dup(fd)
    second, third = dma.from_fd(duplicate), dma.from_fd(first.owner.export_fd())
    assert first.id == second.id == third.id and first.aliases(third)
    assert first.owner.identity == second.owner.identity == (os.fstat(fd).st_dev, os.fstat(fd).st_ino)
    assert tm.Tensor(first, "uint8", 9).aliases(tm.Tensor(second, "uint8", 9))
    other = dma.from_fd(raw_buffer(4096))
    assert other.id != first.id and not other.aliases(first)
    known = live_identities()
    first.close()
    assert dma.from_fd(fd).id == second.id
    second.close()
    third.close()
    assert live_identities() == known - 1
    again = dma.from_fd(fd)
    assert again.id not in (first.id, other.id)
    os.close(fd)
    os.close(duplicate)


def test_our_own_buffers_come_back_as_themselves() -> None:
    for heap in ("system", "udmabuf"):
        storage = dma.allocate(100, heap=heap)
        fd = storage.owner.export_fd()
        assert not os.get_inheritable(fd)
        back = dma.from_fd(fd)
        os.close(fd)
        assert back.aliases(storage) and back.ptr != storage.ptr
        with storage.map("w") as mapped:
            memoryview(mapped)[50] = 5
        with back.map("r") as mapped:
            assert memoryview(mapped)[50] == 5


def test_many_imports_leave_nothing_behind() -> None:
    fd = raw_buffer(4096)
    fds, live, known = open_descriptors(), live_buffers(), live_identities()
    for number in range(100):
        storage = dma.from_fd(fd)
        with storage.map("rw") as mapped:
            memoryview(mapped)[0] = number
        if number % 2:
            storage.close()
    del storage
    assert (open_descriptors(), live_buffers(), live_identities()) == (fds, live, known)
    os.close(fd)
    assert live_buffers() == live - 1


def test_a_buffer_without_an_owner_lives_as_long_as_somebody_holds_it() -> None:
    live = live_buffers()
    tensor = tm.Tensor(dma.allocate(64), "uint8", 64)[10:20]
    assert live_buffers() == live + 1
    array = tensor.numpy()
    del tensor
    array[:] = 1
    assert live_buffers() == live + 1
    del array
    assert live_buffers() == live
