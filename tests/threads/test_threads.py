"""Eight threads on one stack, with streams, uses across them, and blocks that pass from thread to thread."""

import ctypes
import queue
import threading
from collections.abc import Callable

import pytest

from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream

THREADS, ROUNDS = 8, 60


class PassingOn(mr.DeviceMemoryResource):
    """An adaptor written in Python that changes nothing."""


def deep() -> mr.DeviceMemoryResource:
    pool = mr.PoolMemoryResource(mr.LimitingResourceAdaptor(mr.HostMemoryResource(), "64MiB"), release_threshold="8MiB")
    return mr.StatisticsResourceAdaptor(mr.LimitingResourceAdaptor(pool, "32MiB"))


STACKS: dict[str, Callable[[], mr.DeviceMemoryResource]] = {
    "host": mr.HostMemoryResource,
    "pool": lambda: mr.PoolMemoryResource(mr.HostMemoryResource()),
    "small pool": lambda: mr.PoolMemoryResource(mr.HostMemoryResource(), "2MiB", "4MiB"),
    "arena": lambda: mr.ArenaMemoryResource(mr.HostMemoryResource(), "64MiB"),
    "limiting": lambda: mr.LimitingResourceAdaptor(mr.HostMemoryResource(), "2MiB"),
    "binning": lambda: mr.BinningMemoryResource(mr.PoolMemoryResource(mr.HostMemoryResource()), 8, 12),
    "written in Python": lambda: PassingOn(mr.PoolMemoryResource(mr.HostMemoryResource())),
    "deep": deep,
}


class Crew:
    """Eight threads that churn one resource; what goes wrong in any of them is kept."""

    def __init__(self, resource: mr.DeviceMemoryResource) -> None:
        self.resource = resource
        self.wrong: list[str] = []
        self.start = threading.Barrier(THREADS)
        self.passed_on: queue.SimpleQueue[tuple[mr.DeviceBlock, int]] = queue.SimpleQueue()

    def run(self) -> None:
        threads = [threading.Thread(target=self.work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while not self.passed_on.empty():
            self.finish(*self.passed_on.get(), Stream.default(host()))

    def work(self, number: int) -> None:
        try:
            self.start.wait()
            with Stream(host()) as stream:
                for step in range(ROUNDS):
                    self.step(1 + (number * 7919 + step * 104_729) % 60_000, number + 1, stream)
        except BaseException as failure:
            self.wrong.append(repr(failure))
            raise

    def step(self, nbytes: int, value: int, stream: Stream) -> None:
        try:
            block = self.resource.allocate(nbytes, stream if nbytes % 3 else None)
        except (errors.OutOfMemory, errors.OutOfBudget):
            self.resource.reap_pending()
            return
        with self.resource.launch(stream) as use:
            use.write(block)
            host().fill(block, value, 1, (nbytes, 1, 1), stream)
        if nbytes % 5 == 0:  # somebody else's block, or this one again
            self.passed_on.put((block, value))
            block, value = self.passed_on.get()
        self.finish(block, value, stream)

    def finish(self, block: mr.DeviceBlock, value: int, stream: Stream) -> None:
        with self.resource.launch(stream) as use:
            use.read(block)
            stream.launch(self.look, block.ptr, block.nbytes, value)
        self.resource.deallocate(block, stream if block.nbytes % 2 else Stream.default(host()))

    def look(self, address: int, nbytes: int, value: int) -> None:
        if ctypes.string_at(address, nbytes) != bytes([value]) * nbytes:
            self.wrong.append(f"{nbytes} bytes at {address:#x} are not all {value}")


def run_all(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("name", STACKS)
def test_eight_threads_with_streams_keep_their_bytes_and_every_count(name: str) -> None:
    resource = STACKS[name]()
    crew = Crew(resource)
    crew.run()
    resource.reap_pending()
    assert crew.wrong == []
    assert (resource.bytes_outstanding, resource.counters["current_bytes"]) == (0, 0)
    assert (resource.counters["current_count"], resource.counters["retired_count"]) == (0, 0)


def test_trimming_while_others_allocate_loses_nothing() -> None:
    leaf = mr.HostMemoryResource()
    pool, stop = mr.PoolMemoryResource(leaf), threading.Event()

    def trim() -> None:
        while not stop.is_set():
            pool.trim()

    trimmer = threading.Thread(target=trim)
    trimmer.start()
    crew = Crew(pool)
    crew.run()
    stop.set()
    trimmer.join()
    assert crew.wrong == []
    pool.trim()
    assert (pool.pool_size, leaf.bytes_outstanding) == (0, 0)


def test_one_block_is_freed_by_one_of_eight_threads() -> None:
    pool = mr.PoolMemoryResource(mr.HostMemoryResource())
    blocks = [pool.allocate(1000) for _ in range(50)]
    rounds, freed = threading.Barrier(THREADS), list[int]()

    def free_all(number: int) -> None:
        for index, block in enumerate(blocks):
            rounds.wait()
            try:
                pool.deallocate(block)
                freed.append(index)
            except errors.UseAfterFree:
                pass

    run_all(free_all)
    assert freed == list(range(50))
    assert pool.bytes_outstanding == 0


def test_streams_come_and_go_while_memory_of_theirs_is_reused() -> None:
    pool = mr.PoolMemoryResource(mr.HostMemoryResource(), "1MiB", "2MiB")
    wrong: list[str] = []

    def work(number: int) -> None:
        try:
            for step in range(30):
                with Stream(host()) as stream:
                    fill_and_free(number + 1, stream, by_hand=step % 2 == 0)
        except BaseException as failure:
            wrong.append(repr(failure))
            raise

    def fill_and_free(value: int, stream: Stream, by_hand: bool) -> None:
        try:
            block = pool.allocate(300_000, stream)
        except errors.OutOfMemory:
            return
        host().fill(block, value, 1, (block.nbytes, 1, 1), stream)
        stream.launch(look, block.ptr, value)
        if by_hand:
            pool.deallocate(block, stream)

    def look(address: int, value: int) -> None:
        if set(ctypes.string_at(address, 300_000)) != {value}:
            wrong.append(f"{address:#x} is not all {value}")

    run_all(work)
    pool.reap_pending()
    assert wrong == []
    assert (pool.bytes_outstanding, pool.pending_bytes) == (0, 0)
