"""Whoever uses memory without the GIL counts as its user: closing it meanwhile raises `BufferError`."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

import tensormem as tm
from tensormem import errors
from tensormem._core import using
from tensormem.streams import Stream
from tensormem.testing.resources import Gate

COUNT = 8 << 20


def large() -> tm.Tensor:
    return tm.zeros(COUNT, "uint8")


OPERATIONS: dict[str, Callable[[tm.Tensor], object]] = {
    "fill_": lambda tensor: tensor.fill_(3),
    "fill_ with a wide value": lambda tensor: tm.Tensor(tensor.storage, "complex128", (COUNT // 16,)).fill_(1 + 2j),
    "clone": lambda tensor: tensor.clone(),
    "contiguous": lambda tensor: tensor[::2].contiguous(),
    "to": lambda tensor: tensor.to("pinned"),
    "copy_ from": lambda tensor: tm.empty(COUNT, "uint8").copy_(tensor),
    "copy_ into": lambda tensor: tensor.copy_(tm.empty(COUNT, "uint8")),
    "bytes": lambda tensor: bytes(tensor),
    "numpy": lambda tensor: tensor.numpy().sum(),
    "dlpack": lambda tensor: np.from_dlpack(tensor).copy(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_closing_under_an_operation_of_another_thread_never_frees_its_memory(name: str) -> None:
    operation = OPERATIONS[name]
    for _ in range(5):
        tensor = large()
        begun = threading.Event()

        def run(tensor: tm.Tensor = tensor, begun: threading.Event = begun) -> None:
            begun.set()
            try:
                for _ in range(10):  # so that the one who closes gets its turn at last
                    operation(tensor)
            except (errors.UseAfterFree, BufferError):
                pass

        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        while not tensor.closed:
            try:
                tensor.close()
            except BufferError as refused:
                assert "in use" in str(refused)
        thread.join()


def test_a_copy_that_waits_for_a_stream_counts_as_a_user() -> None:
    gate = Gate()
    with Stream(tm.drivers.host()) as stream:
        tensor = tm.zeros(1000)
        gate.hold(stream)
        tensor.copy_(tm.full(1000, 4.0), stream=stream)
        thread = threading.Thread(target=tensor.clone)
        thread.start()
        while tensor.storage.export_count == 0:
            pass
        with pytest.raises(BufferError, match="in use 1 times"):
            tensor.close()
        gate.open()
        thread.join()
    tensor.close()


def test_users_of_several_storages_are_counted_all_or_none() -> None:
    a, b = tm.zeros(3), tm.zeros(3)
    with using(a.storage, b.storage):
        assert (a.storage.export_count, b.storage.export_count) == (1, 1)
        with pytest.raises(BufferError):
            a.close()
    b.close()
    with pytest.raises(errors.UseAfterFree), using(a.storage, b.storage):
        pass
    assert a.storage.export_count == 0
    a.close()


def test_pinned_memory_shown_as_the_cpus_cannot_be_closed_under_it() -> None:
    tensor = tm.full(1000, 2.0, space="pinned")
    capsule = tensor.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError):
        tensor.close()
    del capsule
    tensor.close()
