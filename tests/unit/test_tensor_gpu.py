"""Tensors on the simulated GPU, whose memory faults when the CPU touches it: made, moved, strided, exported."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensormem as tm
from tensormem import drivers, errors
from tensormem.streams import Stream
from tensormem.testing import simulated_gpu


@pytest.fixture(autouse=True)
def _gpus() -> Iterator[None]:
    with simulated_gpu(devices=2, memory="256MiB"):
        yield


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(9).integers(0, 2**31, shape, dtype=np.int32)


@pytest.mark.parametrize(("shape", "route"), [((10, 10), "driver"), ((3, 1 << 20), "staged")])
def test_values_go_to_a_gpu_and_come_back(shape: tuple[int, ...], route: str) -> None:
    array = numbers(*shape)
    there = tm.from_numpy(array).to(tm.gpu(0))
    assert there.space is tm.gpu(0) and there.__dlpack_device__() == (2, 0)
    assert there.transfer_report.route == route
    assert np.array_equal(there.to("main").numpy(), array)


def test_every_pair_of_spaces_is_joined() -> None:
    array = numbers(100, 50)
    spaces = ["main", "pinned", "gpu:0", "gpu:1", "managed"]
    for first in spaces:
        begun = tm.from_numpy(array).to(first)
        for second in spaces:
            assert np.array_equal(begun.to(second).wait().to("main").numpy(), array), f"{first} to {second}"


def test_strided_memory_of_a_gpu_comes_back_as_it_is() -> None:
    array = numbers(6, 7, 8)
    there = tm.from_numpy(array).to("gpu:0")
    for index in (
        (slice(None), slice(1, 3)),
        (slice(None, None, -1),),
        (slice(None), slice(None), slice(None, None, 3)),
    ):
        assert np.array_equal(there[index].to("main").numpy(), array[index])
    assert np.array_equal(there.T.to("main").numpy(), array.T)
    assert np.array_equal(there.T.contiguous().to("main").numpy(), array.T)


def test_a_copy_on_a_stream_of_the_gpu_is_ready_when_it_has_passed() -> None:
    array = numbers(1000)
    with Stream(drivers.get("cuda:0")) as stream:
        there = tm.from_numpy(array).to("gpu:0", stream=stream)
        there.wait()
        assert there.ready and there.transfer_report.done
    assert np.array_equal(there.to("main").numpy(), array)


def test_gpu_memory_is_filled_and_not_lent_to_the_cpu() -> None:
    tensor = tm.full((3, 4), 7, "int32", space="gpu:1")
    assert tensor.to("main").tolist() == [[7] * 4] * 3
    assert repr(tensor) == "<tm.Tensor int32, (3, 4), gpu:1>"
    with pytest.raises(errors.CrossSpaceError):
        tensor.numpy()
    with pytest.raises(BufferError):
        memoryview(tensor)
    with pytest.raises(BufferError):
        tensor.map("r")


def test_pinned_and_managed_memory_have_the_numbers_of_the_vendor() -> None:
    assert tm.zeros(4, space="pinned").__dlpack_device__() == (3, 0)
    managed = tm.full(4, 2.0, space="managed")
    assert managed.__dlpack_device__() == (13, 0) and managed.tolist() == [2.0] * 4
    assert np.from_dlpack(tm.full(4, 2.0, space="pinned"), device="cpu").tolist() == [2.0] * 4
