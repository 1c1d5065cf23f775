"""Copies of memory that the CPU is told not to touch: boxes by a driver, pieces through pinned memory, and through the
host where no box will do. The driver is the host's own, so that every byte can be compared.
"""

from typing import Any

import numpy as np
import pytest

import tensormem as tm
from tensormem import errors
from tensormem.copy.transfer import transfer
from tensormem.drivers import host
from tensormem.memories import Storage, TensorMemory
from tensormem.streams import Stream

CUDA, ROCM = 2, 10


def far(array: np.ndarray[Any, Any], device_type: int = CUDA) -> tm.Tensor:
    """A tensor over the array that says it is in gpu:0."""
    near = tm.from_numpy(array)
    storage = Storage(
        near.storage.ptr,
        near.storage.nbytes,
        owner=array,
        space=tm.gpu(0),
        memory=TensorMemory.MEM,
        device=(device_type, 0),
        driver=host(),
        host_accessible=False,
    )
    return tm.Tensor(storage, near.dtype, near.shape, strides=near.strides, offset=near.offset)


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).integers(0, 2**31, shape, dtype=np.int32)


@pytest.mark.parametrize(
    ("shape", "route"), [((10, 10), "driver"), ((300, 300), "staged"), ((3, 1 << 20), "staged"), ((1 << 21,), "staged")]
)
def test_dense_memory_comes_and_goes_by_the_route_for_its_size(shape: tuple[int, ...], route: str) -> None:
    array = numbers(*shape)
    here = far(array).to("main")
    assert np.array_equal(here.numpy(), array) and here.transfer_report.route == route
    away = np.zeros_like(array)
    report = transfer(far(away), here, None)
    assert np.array_equal(away, array) and report.route == route and report.done
    assert (str(report.source), str(report.destination)) == ("main", "gpu:0")


VIEWS = [
    lambda a: a[:, :, ::2],
    lambda a: a[::2],
    lambda a: a[:, 1:3],
    lambda a: a[::-1],
    lambda a: a.transpose(2, 0, 1),
    lambda a: a.transpose(1, 0, 2)[::-1, :, ::-1],
]


@pytest.mark.parametrize("view", VIEWS)
def test_strided_memory_comes_and_goes_whole_and_leaves_its_gaps(view: Any) -> None:
    array = numbers(6, 7, 8)
    assert np.array_equal(far(view(array)).to("main").numpy(), view(array))
    away, expected = np.zeros_like(array), np.zeros_like(array)
    values = numbers(*view(array).shape)
    transfer(far(view(away)), tm.from_numpy(values), None)
    view(expected)[...] = values
    assert np.array_equal(away, expected)


def test_copies_between_two_far_tensors_go_by_their_driver() -> None:
    array, away = numbers(200, 300), np.zeros((200, 300), np.int32)
    assert far(away).copy_(far(array)).route == "driver"
    assert np.array_equal(away, array)
    far(away).copy_(far(np.ascontiguousarray(array.T)).T[::-1])
    assert np.array_equal(away, array[::-1])


def test_far_copies_on_a_stream_are_ready_when_it_has_passed() -> None:
    array = numbers(1 << 20)
    with Stream(host()) as stream:
        here = far(array).to("main", stream=stream)
        assert np.array_equal(here.wait().numpy(), array)
        assert here.ready and here.transfer_report.seconds > 0


@pytest.mark.parametrize("device_type", [CUDA, ROCM])
def test_far_memory_is_not_shown_read_or_lent(device_type: int) -> None:
    tensor = far(numbers(3), device_type)
    assert repr(tensor) == "<tm.Tensor int32, (3,), gpu:0>"
    for use in (tensor.tolist, tensor.numpy):
        with pytest.raises(errors.CrossSpaceError):
            use()
    with pytest.raises(BufferError, match="gpu:0"):
        memoryview(tensor)
    with pytest.raises(errors.CrossSpaceError):
        tensor.copy_(tm.zeros(3, "int32"))
    assert not hasattr(tensor, "__array_interface__")
    assert hasattr(tensor, "__cuda_array_interface__") == (device_type == CUDA)
    if device_type == CUDA:
        assert tensor.__cuda_array_interface__["shape"] == (3,)


@pytest.mark.parametrize(
    ("device_type", "right", "wrong_ones"),
    [(CUDA, (None, 1, 2, 4711, -1), (0, -2)), (ROCM, (None, 0, 4711, -1), (1, 2, -2))],
)
def test_far_memory_goes_out_by_dlpack_in_the_order_of_streams(
    device_type: int, right: tuple[int | None, ...], wrong_ones: tuple[int, ...]
) -> None:
    array = numbers(3)
    tensor = far(array, device_type)
    assert tensor.__dlpack_device__() == (device_type, 0)
    for stream in right:
        tensor.__dlpack__(stream=stream, max_version=(1, 0))
    for wrong in wrong_ones:
        with pytest.raises(errors.StreamMisuse):
            tensor.__dlpack__(stream=wrong)
    with pytest.raises(TypeError):
        tensor.__dlpack__(stream="x")
    moved = tm.from_dlpack(tensor, device="main")
    assert moved.space is tm.main and moved.tolist() == array.tolist()
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(1, 0), copy=False)


def test_memory_of_a_driver_that_is_not_here_is_described_but_not_copied() -> None:
    tensor = far(numbers(3))
    lost = Storage(
        tensor.ptr,
        tensor.nbytes,
        owner=tensor,
        space=tm.gpu(0),
        memory=TensorMemory.MEM,
        device=(2, 0),
        host_accessible=False,
    )
    with pytest.raises(errors.MemoryUnavailable, match="driver is not loaded"):
        tm.Tensor(lost, "int32", 3).to("main")
