"""Many threads map, export and attach the same shared memory."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import numpy as np
import pytest

import tensormem as tm
from support.bracketed import Bracketed
from support.holdings import open_descriptors
from tensormem import _core

THREADS = 8


def run(body: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(THREADS) as threads:
        for done in [threads.submit(body, number) for number in range(THREADS)]:
            done.result()


def test_threads_that_map_first_get_the_same_read_only_mapping() -> None:
    for _ in range(50):
        assert len(first_addresses()) == 1


def first_addresses() -> set[int]:
    start, found = Barrier(THREADS), set()
    with tm.full(64, 1, "uint8", memory="shm") as tensor:

        def map_once(number: int) -> None:
            start.wait()
            with tensor.map("r") as mapped:
                found.add(mapped.ptr)

        run(map_once)
    return found


def test_threads_share_and_attach_and_the_identity_holds() -> None:
    before, descriptors = _core.live_identities(), open_descriptors()
    tensor = tm.zeros(THREADS, "int64", memory="shm")

    def churn(number: int) -> None:
        for _ in range(200):
            fd = tensor.clone_fd()
            with tm.from_fd(fd, "int64", THREADS) as other:
                os.close(fd)
                assert other.aliases(tensor)
                with other.map("rw") as mapped, memoryview(mapped) as view:
                    view[number] += 1

    run(churn)
    assert tensor.tolist() == [200] * THREADS
    tensor.close()
    assert (_core.live_identities(), open_descriptors()) == (before, descriptors)


def test_unplanned_accesses_of_many_threads_are_begun_and_ended_in_turn() -> None:
    owner = Bracketed(64)
    tensor = tm.Tensor(owner.storage(), "uint8", 64)

    def export(number: int) -> None:
        for turn in range(300):
            array = np.asarray(tensor if turn % 2 else tensor.as_readonly())
            assert array.shape == (64,)
            del array

    run(export)
    for mode in ("r", "rw"):
        calls = [call for call in owner.log if call.endswith(f" {mode}")]
        assert calls == [f"begin {mode}", f"end {mode}"] * (len(calls) // 2) and calls
    tensor.close()
    assert owner.log[-1] == "release"


def test_closing_races_with_mapping_and_one_of_them_wins() -> None:
    for _ in range(200):
        race(tm.zeros(4, "uint8", memory="shm"))


def race(tensor: tm.Tensor) -> None:
    start = Barrier(2)

    def close() -> None:
        start.wait()
        with suppress(BufferError):
            tensor.close()

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(close)
        start.wait()
        with suppress(tm.errors.UseAfterFree), tensor.map("r") as mapped:
            assert bytes(mapped) == bytes(4)
        done.result()


@pytest.mark.parametrize("mode", ["r", "w", "rw"])
def test_maps_of_threads_do_not_end_one_another(mode: str) -> None:
    tensor = tm.zeros(16, "uint8", memory="shm")

    def remap(number: int) -> None:
        for _ in range(500):
            with tensor.map(mode) as mapped:
                assert mapped.mapped and mapped.nbytes == 16

    run(remap)
    tensor.close()


def test_a_descriptor_that_is_exported_while_the_memory_goes_is_of_that_memory_or_refused() -> None:
    for _ in range(100):
        export_and_close(tm.zeros(1 << 18, "uint8", memory="shm"))


def export_and_close(tensor: tm.Tensor) -> None:
    start = Barrier(2)

    def export() -> int | None:
        start.wait()
        try:
            return tensor.clone_fd()
        except tm.errors.UseAfterFree:
            return None

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(export)
        start.wait()
        tensor.close()
        fd = done.result()
    if fd is not None:
        assert os.fstat(fd).st_size == 1 << 18
        os.close(fd)
