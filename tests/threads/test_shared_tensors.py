"""Tensors and storages that several threads make, describe, mark and close at once: each keeps what is its own."""

import threading
from collections.abc import Callable

import pytest

import tensormem as tm
from support.workers import run_in_threads
from tensormem import mr
from tensormem.streams import Event
from tensormem.testing.gpus import simulated_gpu

ROUNDS = 400


def test_a_tensor_has_the_space_of_the_resource_that_its_own_thread_named() -> None:
    with simulated_gpu(devices=1):
        makers: list[Callable[[], mr.DeviceMemoryResource]] = [
            mr.HostMemoryResource,
            mr.PinnedMemoryResource,
            mr.GpuMemoryResource,
            lambda: mr.PoolMemoryResource(mr.HostMemoryResource()),
        ]
        wrong: list[str] = []

        def work(number: int) -> None:
            resource = makers[number % len(makers)]()
            expected = (number % len(makers) != 2, resource)
            for _ in range(ROUNDS):
                made = tm.empty((4, 4), mr=resource)
                block = made.storage.block
                assert block is not None
                found = (made.storage.host_accessible, block.mr)
                if found != expected:
                    wrong.append(f"{found} is not {expected}")

        run_in_threads(work)
        assert wrong == []


def test_what_is_said_about_a_storage_may_be_replaced_by_any_thread() -> None:
    storage = tm.zeros(1024).storage
    start = tm.zeros(4)
    report = start.clone().transfer_report
    event = Event(tm.drivers.host())
    event.record(tm.Stream.default(tm.drivers.host()))

    def work(number: int) -> None:
        for step in range(ROUNDS):
            storage.reason = f"because of {number} {step}"
            storage.transfer = report
            storage.mark_pending(event)
            assert storage.reason.startswith("because of ")
            assert storage.transfer is report
            assert storage.owner is not None
            storage.wait()
            assert storage.ready

    run_in_threads(work)
    storage.close()
    assert storage.owner is None


@pytest.mark.parametrize("make", [lambda: tm.zeros(64), lambda: tm.zeros(64, memory="shm")], ids=["mem", "shm"])
def test_a_tensor_is_closed_once_by_any_number_of_threads(make: Callable[[], tm.Tensor]) -> None:
    for _ in range(50):
        tensor, barrier = make(), threading.Barrier(8)

        def close(_number: int, tensor: tm.Tensor = tensor, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            tensor.close()

        run_in_threads(close)
        assert tensor.storage.closed


def test_one_counter_per_thread_adds_up_in_one_pool() -> None:
    pool = mr.StatisticsResourceAdaptor(mr.PoolMemoryResource(mr.HostMemoryResource()))

    def work(number: int) -> None:
        for step in range(ROUNDS):
            pool.deallocate(pool.allocate(64 << ((number + step) % 6)))

    run_in_threads(work)
    counters = pool.counters
    assert (counters["current_bytes"], counters["current_count"]) == (0, 0)
    assert counters["total_count"] == 8 * ROUNDS
