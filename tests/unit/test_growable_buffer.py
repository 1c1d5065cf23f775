"""A buffer that grows in place: its address stays, views stay valid, nothing shrinks under them, new bytes are zero."""

import ctypes
import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress

import numpy
import pytest

from support.holdings import held, nothing_left_behind
from tensormem import errors
from tensormem.vmm import GrowableBuffer

PAGE = 4096
MIB = 1 << 20


@pytest.fixture
def buffer() -> Iterator[GrowableBuffer]:
    with nothing_left_behind():
        made = GrowableBuffer("64MiB", 1000)
        yield made
        made.close()


def content(buffer: GrowableBuffer) -> bytes:
    with memoryview(buffer) as view:
        return bytes(view)


def test_it_grows_in_place_and_old_arrays_stay_valid(buffer: GrowableBuffer) -> None:
    address, old = buffer.address, numpy.frombuffer(memoryview(buffer), numpy.uint8)
    old[:] = 7
    buffer.resize("32MiB")
    new = numpy.frombuffer(memoryview(buffer), numpy.uint8)
    assert (buffer.address, old.ctypes.data, new.ctypes.data) == (address, address, address)
    assert (len(buffer), buffer.nbytes, buffer.capacity, buffer.max_size) == (32 * MIB, 32 * MIB, 32 * MIB, 64 * MIB)
    new[999], new[-1] = 9, 1
    assert (old[999], old[0], new[1000], int(new.sum())) == (9, 7, 0, 999 * 7 + 9 + 1)
    del old, new


def test_shrinking_gives_memory_back(buffer: GrowableBuffer) -> None:
    buffer.resize("20MiB")
    committed = held()["committed_bytes"]
    buffer.resize("3MiB")
    assert held()["committed_bytes"] == committed - 16 * MIB and buffer.capacity == 4 * MIB
    buffer.resize(0)
    assert held()["committed_bytes"] == committed - 20 * MIB and buffer.capacity == 0


@pytest.mark.parametrize("low", [0, 1, 100, PAGE, 2 * MIB, 2 * MIB + 1])
def test_bytes_that_come_back_are_zero(buffer: GrowableBuffer, low: int) -> None:
    buffer.resize("5MiB")
    ctypes.memset(buffer.address, 0xEE, 5 * MIB)
    buffer.resize(low)
    for nbytes in (low + 1, low + 5000, 5 * MIB):
        buffer.resize(nbytes)
        assert content(buffer) == b"\xee" * low + b"\0" * (nbytes - low)
        ctypes.memset(buffer.address + low, 0xDD, nbytes - low)
        buffer.resize(low)


def test_a_view_keeps_it_from_shrinking_below_the_view_and_from_closing(buffer: GrowableBuffer) -> None:
    buffer.resize(10_000)
    ctypes.memset(buffer.address, 1, 10_000)
    buffer.resize(3 * MIB)
    short = memoryview(buffer)[:10]
    for nbytes in (0, 9, 2 * MIB, 3 * MIB - 1):
        with pytest.raises(BufferError, match="view of 3,145,728 bytes"):
            buffer.resize(nbytes)
    with pytest.raises(BufferError, match="1 views"):
        buffer.close()
    assert (len(buffer), buffer.capacity, content(buffer)[:10_001]) == (3 * MIB, 4 * MIB, b"\1" * 10_000 + b"\0")
    buffer.resize(8 * MIB)
    buffer.resize(3 * MIB)
    assert bytes(short) == b"\1" * 10
    short.release()
    buffer.resize(5)
    assert content(buffer) == b"\1" * 5


def test_views_of_many_lengths_are_counted_one_by_one(buffer: GrowableBuffer) -> None:
    views = []
    for nbytes in (100, 200, 200, 300):
        buffer.resize(nbytes)
        views.append(memoryview(buffer))
    for smallest in (300, 200, 200, 100):
        with pytest.raises(BufferError):
            buffer.resize(smallest - 1)
        buffer.resize(smallest)
        views.pop().release()
    buffer.resize(0)


def test_a_view_of_nothing_is_a_view(buffer: GrowableBuffer) -> None:
    buffer.resize(0)
    with memoryview(buffer) as view:
        assert view.nbytes == 0
        with pytest.raises(BufferError):
            buffer.close()


def test_bad_sizes_are_refused_and_change_nothing(buffer: GrowableBuffer) -> None:
    before = held(), len(buffer), buffer.capacity
    for nbytes in (-1, 2**63, "many"):
        with pytest.raises(errors.InvalidSize):
            buffer.resize(nbytes)
    with pytest.raises(errors.InvalidOffset) as refused:
        buffer.resize("65MiB")
    assert (refused.value.size, refused.value.capacity) == (65 * MIB, 64 * MIB)
    for size in (0, -1, 2**62 + 1, 2**70):
        with pytest.raises(errors.InvalidSize):
            GrowableBuffer(size)
    with pytest.raises(errors.InvalidArgument):
        GrowableBuffer.__init__(buffer, 100)
    assert (held(), len(buffer), buffer.capacity) == before


def test_more_than_there_is_is_refused_at_once() -> None:
    with nothing_left_behind(), GrowableBuffer(1 << 45, 100) as buffer:
        ctypes.memset(buffer.address, 3, 100)
        before = held()
        with pytest.raises(errors.OutOfPhysicalMemory) as refused:
            buffer.resize(1 << 45)
        assert refused.value.requested == (1 << 45) - buffer.page_size
        assert held() == before and content(buffer) == b"\3" * 100
    with nothing_left_behind(), pytest.raises(errors.OutOfVirtualMemory):
        GrowableBuffer(2**62)


def test_a_closed_buffer_says_so_everywhere() -> None:
    buffer = GrowableBuffer(100)
    assert buffer.page_size == buffer.max_size == PAGE and "in use" in repr(buffer)
    buffer.close()
    buffer.close()
    for call in (lambda: buffer.resize(1), lambda: buffer.address, lambda: memoryview(buffer), buffer.__enter__):
        with pytest.raises(errors.UseAfterRelease):
            call()
    assert (len(buffer), buffer.capacity, buffer.closed, repr(buffer)) == (0, 0, True, "<GrowableBuffer, closed>")
    with pytest.raises(TypeError, match="cannot be pickled"):
        buffer.__reduce__()


def test_a_buffer_that_was_never_made_does_not_crash() -> None:
    buffer = GrowableBuffer.__new__(GrowableBuffer)
    buffer.close()
    for call in (lambda: buffer.resize(1), lambda: buffer.address, lambda: memoryview(buffer)):
        with pytest.raises(errors.UseAfterRelease):
            call()


def test_dropped_with_a_view_it_lives_as_long_as_the_view() -> None:
    with nothing_left_behind():
        array = numpy.frombuffer(memoryview(GrowableBuffer("1MiB", 100)), numpy.uint8)
        gc.collect()
        array[:] = 5
        assert int(array.sum()) == 500
        del array


class Loop:
    """Garbage that only the collector finds, holding a view."""

    def __init__(self, view: memoryview) -> None:
        self.view, self.me = view, self


def test_the_collector_may_take_views_back_in_the_middle_of_a_resize(buffer: GrowableBuffer) -> None:
    alive = weakref.ref(Loop(memoryview(buffer)))
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        while alive() is not None:
            buffer.resize(64 * MIB)
            buffer.resize(2000)
    finally:
        gc.set_threshold(*threshold)
    buffer.resize(0)


def test_eight_threads_grow_shrink_and_look_at_one_buffer(buffer: GrowableBuffer) -> None:
    failures: list[BaseException] = []

    def use(seed: int) -> None:
        try:
            for step in range(60):
                with suppress(BufferError):
                    buffer.resize((seed * 7919 + step * 104729) % (8 * MIB))
                with memoryview(buffer) as view:
                    if view.nbytes:
                        view[0] = view[view.nbytes - 1] = seed
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    buffer.resize(0)
