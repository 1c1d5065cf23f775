"""ArenaMemoryResource: a pool per handful of threads."""

import threading
from collections.abc import Callable

import pytest

from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.resources import Gate

MIB = 1 << 20


def test_all_arenas_together_stay_within_the_arena_size() -> None:
    arena = mr.ArenaMemoryResource(mr.HostMemoryResource(), "8MiB", arenas=4)
    held = []
    with pytest.raises((errors.OutOfMemory, errors.OutOfBudget)):
        while True:
            held.append(arena.allocate("500KiB"))
    assert arena.pool_size <= 8 * MIB
    assert len(held) >= 10
    assert arena.bytes_outstanding == sum(block.nbytes for block in held)


def test_a_thread_helps_itself_from_the_arenas_of_others() -> None:
    arena = mr.ArenaMemoryResource(mr.HostMemoryResource(), "4MiB", arenas=4)
    done = threading.Event()

    def fill_and_free() -> None:
        blocks = [arena.allocate(MIB) for _ in range(3)]
        for block in blocks:
            arena.deallocate(block)
        done.set()

    thread = threading.Thread(target=fill_and_free)
    thread.start()
    thread.join()
    assert done.is_set()
    blocks = [arena.allocate(MIB) for _ in range(3)]
    assert len({block.ptr for block in blocks}) == 3


def test_a_block_goes_back_to_the_arena_that_made_it_from_any_thread() -> None:
    arena = mr.ArenaMemoryResource(mr.HostMemoryResource(), arenas=8)
    blocks = [arena.allocate(1000) for _ in range(8)]

    def free() -> None:
        arena.deallocate(blocks.pop())

    threads = [threading.Thread(target=free) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (arena.bytes_outstanding, arena.counters["current_count"]) == (0, 0)
    assert arena.counters["total_count"] == 8
    assert arena.trim() > 0
    assert arena.pool_size == 0


def test_it_tells_what_is_free() -> None:
    arena = mr.ArenaMemoryResource(mr.HostMemoryResource(), arenas=2)
    assert (arena.arena_count, arena.pool_size, arena.total_free, arena.fragmentation) == (2, 0, 0, 0.0)
    block = arena.allocate(1000)
    assert arena.pool_size > arena.total_free >= arena.largest_free > 0
    assert "2 arenas" in arena.describe()
    arena.deallocate(block)
    assert arena.total_free == arena.pool_size


def test_memory_of_a_busy_stream_stays_with_it() -> None:
    arena, gate = mr.ArenaMemoryResource(mr.HostMemoryResource()), Gate()
    with Stream(host()) as busy:
        gate.hold(busy)
        block = arena.allocate(4096, busy)
        arena.deallocate(block, busy)
        assert arena.allocate(4096).ptr != block.ptr
        assert arena.allocate(4096, busy).ptr == block.ptr
        gate.open()


@pytest.mark.parametrize("arenas", [0, -1, 65, 1.5, "two"])
def test_a_bad_number_of_arenas_is_refused(arenas: int) -> None:
    with pytest.raises(errors.InvalidArgument):
        mr.ArenaMemoryResource(mr.HostMemoryResource(), arenas=arenas)
    with pytest.raises(errors.InvalidSize):
        mr.ArenaMemoryResource(mr.HostMemoryResource(), "12 potatoes")


def in_two_threads(work: Callable[[], None]) -> None:
    """Threads are dealt out to arenas in turn: one after the other, two of them meet both of two arenas."""
    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()


def test_room_in_another_arena_is_taken_before_waiting_for_a_stream() -> None:
    gate = Gate()
    arena = mr.ArenaMemoryResource(mr.HostMemoryResource(), "2MiB", arenas=2, pending_timeout=float("inf"))
    in_two_threads(lambda: arena.deallocate(arena.allocate(MIB)))
    assert arena.pool_size == 2 * MIB
    with Stream(host()) as stuck:
        gate.hold(stuck)
        block = arena.allocate(MIB, stuck)
        arena.deallocate(block, stuck)
        heir = arena.allocate(MIB)
        assert heir.ptr != block.ptr
        gate.open()


def test_without_room_anywhere_a_caller_waits_for_the_first_that_passes_and_not_for_ever() -> None:
    patient = mr.ArenaMemoryResource(mr.HostMemoryResource(), "2MiB", arenas=2, pending_timeout=float("inf"))
    hasty = mr.ArenaMemoryResource(mr.HostMemoryResource(), "2MiB", arenas=2, pending_timeout=0.01)
    stuck, gate = Gate(), Gate()
    with Stream(host()) as never, Stream(host()) as busy, Stream(host()) as opener:
        stuck.hold(never)
        gate.hold(busy)
        for arena in (patient, hasty):
            lost, found = arena.allocate(MIB, never), arena.allocate(MIB, busy)
            arena.deallocate(lost, never)
            arena.deallocate(found, busy)
        with pytest.raises(MemoryError):
            hasty.allocate(MIB)
        opener.launch(gate.open)
        heir = patient.allocate(MIB)
        assert heir.ptr != lost.ptr
        stuck.open()
