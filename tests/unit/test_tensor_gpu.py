"""Tensors on simulated GPUs of both vendors, whose memory faults when the CPU touches it: made, moved, exported."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tensormem as tm
from tensormem import errors
from tensormem.streams import Stream
from tensormem.testing import SimulatedGpu, simulated_gpu
from tensormem.testing.resources import Gate


@pytest.fixture(autouse=True, params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(devices=2, memory="256MiB", vendor=request.param) as gpu:
        yield gpu
    assert gpu.leaks == {}


def numbers_of(gpu: SimulatedGpu) -> dict[str, int]:
    """DLPack's device types of a vendor."""
    return {"gpu": 2, "pinned": 3} if gpu.vendor == "cuda" else {"gpu": 10, "pinned": 11}


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(9).integers(0, 2**31, shape, dtype=np.int32)


@pytest.mark.parametrize(("shape", "route"), [((10, 10), "driver"), ((3, 1 << 20), "staged")])
def test_values_go_to_a_gpu_and_come_back(gpu: SimulatedGpu, shape: tuple[int, ...], route: str) -> None:
    array = numbers(*shape)
    there = tm.from_numpy(array).to(tm.gpu(0))
    assert there.space is tm.gpu(0) and there.__dlpack_device__() == (numbers_of(gpu)["gpu"], 0)
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


def test_a_copy_on_a_stream_of_the_gpu_is_ready_when_it_has_passed(gpu: SimulatedGpu) -> None:
    array = numbers(1000)
    with Stream(gpu.drivers[0]) as stream:
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


def test_pinned_and_managed_memory_have_the_numbers_of_the_vendor(gpu: SimulatedGpu) -> None:
    assert tm.zeros(4, space="pinned").__dlpack_device__() == (numbers_of(gpu)["pinned"], 0)
    managed = tm.full(4, 2.0, space="managed")
    assert managed.__dlpack_device__() == (13, 0) and managed.tolist() == [2.0] * 4
    assert np.from_dlpack(tm.full(4, 2.0, space="pinned"), device="cpu").tolist() == [2.0] * 4


def test_the_array_interface_of_cuda_is_offered_by_its_memory_alone(gpu: SimulatedGpu) -> None:
    there = tm.zeros((2, 3), space="gpu:0")
    assert hasattr(there, "__cuda_array_interface__") == (gpu.vendor == "cuda")
    if gpu.vendor == "cuda":
        assert there.__cuda_array_interface__["data"] == (there.ptr, False)


def test_dlpack_takes_the_streams_that_a_vendor_numbers(gpu: SimulatedGpu) -> None:
    there = tm.zeros(4, space="gpu:0").wait()
    right, wrong = ((None, -1, 1, 2), (0, -2)) if gpu.vendor == "cuda" else ((None, -1, 0), (1, 2, -2))
    for stream in right:
        there.__dlpack__(stream=stream, max_version=(1, 0))
    for stream in wrong:
        with pytest.raises(errors.StreamMisuse, match=f"no stream {stream} "):
            there.__dlpack__(stream=stream, max_version=(1, 0))


# ---- Copies on a stream are queued, whatever their route ----


@contextmanager
def held(stream: Stream) -> Iterator[Gate]:
    """A gate that the stream waits at: nothing behind it happens until it is opened."""
    gate = Gate()
    gate.hold(stream)
    try:
        yield gate
    finally:
        gate.open()


@pytest.mark.parametrize("shape", [(100,), (300, 300), (9, 1 << 20)])
def test_staged_copies_return_before_they_are_done_in_both_directions(
    gpu: SimulatedGpu, shape: tuple[int, ...]
) -> None:
    array = numbers(*shape)
    with Stream(gpu.drivers[0]) as stream, held(stream) as gate:
        there = tm.from_numpy(array).to("gpu:0", stream=stream)
        back = there.to("main", stream=stream)
        assert not back.ready and not back.transfer_report.done and back.transfer_report.route == "staged"
        assert back.transfer_report.seconds is None
        gate.open()
        assert np.array_equal(back.wait().numpy(), array)
        assert there.ready and back.ready and back.transfer_report.seconds > 0


def test_the_source_of_a_queued_copy_lives_until_it_is_done(gpu: SimulatedGpu) -> None:
    with Stream(gpu.drivers[0]) as stream, held(stream) as gate:
        source = tm.full(1 << 20, 3, "int32")
        there = source.to("gpu:0", stream=stream)
        source = tm.full(1 << 20, 4, "int32")
        gate.open()
        assert set(there.to("main").tolist()) == {3}
    assert source.size == 1 << 20


def test_strided_memory_comes_back_on_a_stream_without_waiting(gpu: SimulatedGpu) -> None:
    array = numbers(60, 70, 8)
    there = tm.from_numpy(array).to("gpu:0")
    views: list[Callable[[Any], Any]] = [
        lambda a: a[:, 1:3],
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a[::-1, ::-1, ::-1],
    ]
    with Stream(gpu.drivers[0]) as stream, held(stream) as gate:
        back = [view(there).to("main", stream=stream) for view in views]
        assert not any(each.ready for each in back)
        gate.open()
        for view, each in zip(views, back, strict=True):
            assert np.array_equal(each.wait().numpy(), view(array))


def test_simulated_latency_is_not_waited_for_by_the_call(gpu: SimulatedGpu) -> None:
    array = numbers(3, 1 << 20)
    gpu.delay("cuMemcpyAsync" if gpu.vendor == "cuda" else "hipMemcpyAsync", 0.5, on="stream")
    with Stream(gpu.drivers[0]) as stream:
        there = tm.from_numpy(array).to("gpu:0", stream=stream)
        assert not there.ready
        there.wait()
        # Three pieces, each of which takes its time.
        assert there.transfer_report.seconds >= 1.5
        gpu.clear_plan()
    assert np.array_equal(there.to("main").numpy(), array)


def test_without_a_stream_pageable_memory_can_change_when_the_call_returns(gpu: SimulatedGpu) -> None:
    array = numbers(1 << 20)
    expected = array.copy()
    there = tm.from_numpy(array).to("gpu:0")
    array[:] = 0
    assert np.array_equal(there.to("main").numpy(), expected)


def test_copies_of_two_devices_wait_for_one_another_on_their_streams(gpu: SimulatedGpu) -> None:
    array = numbers(1 << 18)
    with Stream(gpu.drivers[0]) as stream, held(stream) as gate:
        first = tm.from_numpy(array).to("gpu:0", stream=stream)
        second = first.to("gpu:1", stream=stream)
        third = second.clone()
        assert not (first.ready or second.ready or third.ready)
        gate.open()
        assert np.array_equal(third.to("main").numpy(), array)


def test_a_consumer_of_dlpack_waits_on_its_own_stream(gpu: SimulatedGpu) -> None:
    with Stream(gpu.drivers[0]) as stream, Stream(gpu.drivers[0]) as consumer, held(stream) as gate:
        there = tm.from_numpy(numbers(1000)).to("gpu:0", stream=stream)
        there.__dlpack__(stream=consumer.handle, max_version=(1, 0))
        assert not there.ready and not consumer.done
        gate.open()
        consumer.synchronize()
        assert there.ready


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.permute(1, 0, 2),
        lambda a: a.permute(2, 1, 0),
        lambda a: a[:, :, ::-1],
        lambda a: a[1:, ::2, 3:7],
        lambda a: a[::-1, :, 2],
    ],
)
def test_layouts_on_a_gpu_are_copied_there_in_boxes(gpu: SimulatedGpu, view: Any) -> None:
    array = numbers(12, 14, 16)
    there, expected = tm.from_numpy(array).to("gpu:0"), view(tm.from_numpy(array)).contiguous()
    hosted = gpu.calls("cuLaunchHostFunc") + gpu.calls("hipLaunchHostFunc")
    made = view(there).clone()
    assert made.transfer_report.route == "driver"
    assert gpu.calls("cuLaunchHostFunc") + gpu.calls("hipLaunchHostFunc") == hosted
    assert np.array_equal(made.to("main").numpy(), expected.numpy())
