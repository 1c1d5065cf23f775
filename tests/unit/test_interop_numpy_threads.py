"""NumPy's allocator hook under threads and asynchronous tasks: what is local, and what goes from one to the other."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name

from tensormem import mr
from tensormem.interop.numpy import use


@pytest.fixture
def host() -> mr.HostMemoryResource:
    return mr.HostMemoryResource()


def run_in_thread(work: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    assert failures == []


def test_another_thread_is_not_affected(host: mr.HostMemoryResource) -> None:
    names: list[str | None] = []
    with use(host):
        run_in_thread(lambda: names.append(get_handler_name(np.empty(10))))
    assert names == ["default_allocator"]


def test_an_array_can_be_freed_by_another_thread(host: mr.HostMemoryResource) -> None:
    with use(host):
        arrays = [np.empty(100, np.uint8) for _ in range(10)]
    run_in_thread(arrays.clear)
    assert host.bytes_outstanding == 0


def test_eight_threads_make_pass_on_and_free_arrays_and_all_adds_up() -> None:
    shared = mr.StatisticsResourceAdaptor(mr.HostMemoryResource())
    others: list[Any] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        own: list[Any] = []
        start.wait()
        with use(shared):
            for size in random.integers(0, 5000, 300):
                array = np.zeros(size, np.uint8)
                array += seed
                own.append(array)
                others.append(np.full(size, seed, np.uint8))
                if len(others) > 50:
                    others.pop()
                if len(own) > 20:
                    assert (own.pop(0) == seed).all()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.bytes_outstanding == sum(max(array.nbytes, 1) for array in others)
    others.clear()
    assert shared.bytes_outstanding == 0
    assert shared.allocation_counts.total_count >= 8 * 600


def test_asynchronous_tasks_have_their_own(host: mr.HostMemoryResource) -> None:
    async def make(source: mr.HostMemoryResource, nbytes: int, turn: asyncio.Barrier) -> Any:
        with use(source):
            await turn.wait()
            array = np.empty(nbytes, np.uint8)
            await turn.wait()
            assert get_handler_name() == "tensormem"
        assert get_handler_name() == "default_allocator"
        return array

    async def both() -> tuple[Any, Any]:
        turn = asyncio.Barrier(2)
        return await asyncio.gather(make(host, 100, turn), make(second, 30, turn))

    second = mr.HostMemoryResource()
    arrays = asyncio.run(both())
    assert (host.bytes_outstanding, second.bytes_outstanding) == (100, 30)
    del arrays
    assert (host.bytes_outstanding, second.bytes_outstanding) == (0, 0)
