"""Pools of the simulated CUDA driver beyond plain ones: by location, of the host, managed, and between processes."""

import ctypes
import os
import threading
from collections.abc import Iterator

import pytest

from support.bare_gpu import INVALID_VALUE, BareGpu, Location, Properties, properties
from tensormem.testing import simulated_gpu

NOWHERE = -2


@pytest.fixture
def bare() -> Iterator[BareGpu]:
    with simulated_gpu(2, "64MiB") as gpu:
        yield BareGpu(gpu)


def create(bare: BareGpu, wanted: Properties) -> ctypes.c_void_p:
    pool = ctypes.c_void_p()
    bare.ask("MemPoolCreate", ctypes.byref(pool), ctypes.byref(wanted))
    return pool


def allocate(bare: BareGpu, pool: ctypes.c_void_p, stream: ctypes.c_void_p, nbytes: int = 4096) -> int:
    address = ctypes.c_uint64()
    bare.ask("MemAllocFromPoolAsync", ctypes.byref(address), ctypes.c_size_t(nbytes), pool, stream)
    return address.value


def export(bare: BareGpu, pool: ctypes.c_void_p) -> int:
    fd = ctypes.c_int(-1)
    bare.ask("MemPoolExportToShareableHandle", ctypes.byref(fd), pool, ctypes.c_int(1), ctypes.c_uint64(0))
    return fd.value


def import_pool(bare: BareGpu, fd: int) -> ctypes.c_void_p:
    pool = ctypes.c_void_p()
    flags = ctypes.c_uint64(0)
    bare.ask("MemPoolImportFromShareableHandle", ctypes.byref(pool), ctypes.c_void_p(fd), ctypes.c_int(1), flags)
    return pool


@pytest.mark.parametrize("place", [1, 3])
def test_memory_of_a_pool_is_seen_by_whoever_imports_the_pool_and_the_pointer(bare: BareGpu, place: int) -> None:
    stream = bare.stream()
    pool = create(bare, Properties(1, 1, Location(place, 0)))
    address = allocate(bare, pool, stream)
    bare.ask("MemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(9), ctypes.c_size_t(16), stream)
    bare.ask("StreamSynchronize", stream)
    fd, note = export(bare, pool), ctypes.create_string_buffer(64)
    assert os.fstat(fd).st_size == 0
    bare.ask("MemPoolExportPointer", note, ctypes.c_uint64(address))
    imported, again = import_pool(bare, fd), ctypes.c_uint64()
    for _ in range(2):  # the same address, to be freed as often
        bare.ask("MemPoolImportPointer", ctypes.byref(again), imported, note)
    assert again.value != address
    seen = ctypes.create_string_buffer(16)
    assert bare.copy(ctypes.addressof(seen), again.value, 16, stream) == 0
    bare.ask("StreamSynchronize", stream)
    assert seen.raw == bytes([9] * 16)
    for _ in range(2):
        bare.ask("MemFreeAsync", again, stream)
    assert bare.call("MemFreeAsync", again, stream) == INVALID_VALUE
    bare.ask("MemFreeAsync", ctypes.c_uint64(address), stream)
    bare.ask("StreamSynchronize", stream)
    for each in (imported, pool):
        bare.ask("MemPoolDestroy", each)
    os.close(fd)
    assert bare.gpu.memory() == {}


def test_an_imported_pool_outlives_work_that_is_queued_on_its_memory(bare: BareGpu) -> None:
    stream, gate = bare.stream(), threading.Event()
    pool = create(bare, properties(0, exportable=True))
    address = allocate(bare, pool, stream)
    fd, note, again = export(bare, pool), ctypes.create_string_buffer(64), ctypes.c_uint64()
    bare.ask("MemPoolExportPointer", note, ctypes.c_uint64(address))
    imported = import_pool(bare, fd)
    os.close(fd)
    bare.ask("MemPoolImportPointer", ctypes.byref(again), imported, note)
    bare.launch(stream, gate.wait)
    bare.ask("MemsetD8Async", again, ctypes.c_ubyte(9), ctypes.c_size_t(4096), stream)
    bare.ask("MemFreeAsync", again, stream)
    bare.ask("MemPoolDestroy", imported)
    gate.set()
    seen = ctypes.create_string_buffer(16)
    assert bare.copy(ctypes.addressof(seen), address, 16, stream) == 0
    assert seen.raw == bytes([9] * 16)


def test_an_imported_pool_gives_nothing_out_and_a_wrong_note_is_refused(bare: BareGpu) -> None:
    stream, address = bare.stream(), ctypes.c_uint64()
    fd = export(bare, create(bare, properties(0, exportable=True)))
    imported = import_pool(bare, fd)
    os.close(fd)
    answer = bare.call("MemAllocFromPoolAsync", ctypes.byref(address), ctypes.c_size_t(64), imported, stream)
    assert answer == INVALID_VALUE
    note = ctypes.create_string_buffer(64)
    assert bare.call("MemPoolImportPointer", ctypes.byref(address), imported, note) == INVALID_VALUE
    plain = create(bare, properties(0))
    fd_of_none = ctypes.c_int(-1)
    answer = bare.call("MemPoolExportToShareableHandle", ctypes.byref(fd_of_none), plain, 1, ctypes.c_uint64(0))
    assert (answer, fd_of_none.value) == (INVALID_VALUE, -1)


def test_a_pool_that_can_be_exported_counts_against_its_device(bare: BareGpu) -> None:
    stream, address = bare.stream(), ctypes.c_uint64()
    pool = create(bare, properties(0, exportable=True))
    allocate(bare, pool, stream, 48 << 20)
    answer = bare.call("MemAllocFromPoolAsync", ctypes.byref(address), ctypes.c_size_t(32 << 20), pool, stream)
    assert answer == 2


@pytest.mark.parametrize(("place", "kind"), [(2, 1), (3, 1), (0, 2), (1, 2)])
def test_pools_of_the_host_and_of_managed_memory_give_what_the_cpu_can_touch(
    bare: BareGpu, place: int, kind: int
) -> None:
    pool, first, where = ctypes.c_void_p(), ctypes.c_void_p(), Location(place, 0)
    bare.ask("MemGetDefaultMemPool", ctypes.byref(first), ctypes.byref(where), ctypes.c_int(kind))
    bare.ask("MemGetMemPool", ctypes.byref(pool), ctypes.byref(where), ctypes.c_int(kind))
    assert pool.value == first.value
    stream = bare.stream()
    address = allocate(bare, pool, stream)
    bare.ask("MemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(5), ctypes.c_size_t(64), stream)
    bare.ask("StreamSynchronize", stream)
    assert ctypes.string_at(address, 64) == bytes([5] * 64)
    bare.ask("MemFreeAsync", ctypes.c_uint64(address), stream)
    own = create(bare, Properties(kind, 0, where))
    bare.ask("MemSetMemPool", ctypes.byref(where), ctypes.c_int(kind), own)
    bare.ask("MemGetMemPool", ctypes.byref(pool), ctypes.byref(where), ctypes.c_int(kind))
    assert pool.value == own.value


def test_what_was_said_about_managed_memory_can_be_asked(bare: BareGpu) -> None:
    address, value, stream = ctypes.c_uint64(), ctypes.c_int(), bare.stream()
    size = ctypes.c_size_t(4096)
    bare.ask("MemAllocManaged", ctypes.byref(address), size, ctypes.c_uint(1))

    def ask(attribute: int) -> int:
        bare.ask(
            "MemRangeGetAttribute", ctypes.byref(value), ctypes.c_size_t(4), ctypes.c_int(attribute), address, size
        )
        return value.value

    assert [ask(attribute) for attribute in (1, 2, 3, 4)] == [0, NOWHERE, NOWHERE, NOWHERE]
    bare.ask("MemAdvise", address, size, ctypes.c_int(1), ctypes.c_int(0))
    bare.ask("MemAdvise", address, size, ctypes.c_int(3), ctypes.c_int(1))
    bare.ask("MemAdvise", address, size, ctypes.c_int(5), ctypes.c_int(-1))
    bare.ask("MemPrefetchAsync", address, size, ctypes.c_int(1), stream)
    assert [ask(attribute) for attribute in (1, 2, 3, 4)] == [1, 1, -1, 1]
    plain = ctypes.c_uint64(bare.allocate())
    answer = bare.call("MemRangeGetAttribute", ctypes.byref(value), ctypes.c_size_t(4), ctypes.c_int(1), plain, size)
    assert answer == INVALID_VALUE
