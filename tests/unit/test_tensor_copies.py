"""Copies: between spaces and layouts, on streams, with a report. Nothing moves by itself."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensormem as tm
from tensormem import errors
from tensormem._core import held_for_streams, reap_streams
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.resources import Gate


def test_the_same_space_gives_the_same_tensor_unless_a_copy_is_asked_for() -> None:
    tensor = tm.zeros(3)
    assert tensor.to("main") is tensor and tensor.to(tm.main, copy=False) is tensor
    again = tensor.to("main", copy=True)
    assert not again.aliases(tensor) and again.space is tm.main


def test_values_arrive_in_another_space_and_come_back() -> None:
    array = np.arange(12.0).reshape(3, 4)
    tensor = tm.from_numpy(array)
    away = tensor.T.to("pinned")
    assert away.space is tm.pinned and away.is_contiguous
    assert np.array_equal(away.to("main").numpy(), array.T)


def test_a_move_is_refused_when_no_copy_is_allowed() -> None:
    with pytest.raises(errors.CrossSpaceError, match=r"main and pinned"):
        tm.zeros(3).to("pinned", copy=False)


def test_a_copy_across_spaces_is_refused_and_names_both() -> None:
    with pytest.raises(errors.CrossSpaceError) as caught:
        tm.zeros(3).copy_(tm.zeros(3, space="pinned"))
    assert (caught.value.left, caught.value.right) == (tm.main, tm.pinned)


def test_copies_of_different_layouts_types_and_rights_are_refused() -> None:
    tensor = tm.zeros((2, 3))
    for source in (tm.zeros((3, 2)), tm.zeros(6), tm.zeros((2, 3), "int32"), np.zeros((2, 3))):
        with pytest.raises(errors.InvalidArgument):
            tensor.copy_(source)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument):
        tensor.as_readonly().copy_(tensor)
    with pytest.raises(errors.InvalidArgument):
        tm.Tensor(tensor.storage, "float32", (2, 3), strides=(0, 1)).copy_(tm.zeros((2, 3)))


def test_a_report_tells_bytes_seconds_route_and_why() -> None:
    report = tm.zeros(1000).copy_(tm.full(1000, 2.0))
    assert (report.nbytes, report.route, report.done) == (4000, "cpu", True)
    assert report.seconds > 0 and report.bytes_per_second > 0 and "CPU" in report.why
    assert (report.source, report.destination) == (tm.main, tm.main) and "4000 bytes by cpu" in repr(report)
    assert tm.zeros(3).transfer_report is None


def test_overlapping_copies_are_right() -> None:
    tensor = tm.from_numpy(np.arange(10))
    tensor[1:].copy_(tensor[:-1])
    assert tensor.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    square = tm.from_numpy(np.arange(9).reshape(3, 3))
    square.copy_(square.T)
    assert square.tolist() == np.arange(9).reshape(3, 3).T.tolist()


layouts = st.lists(st.integers(0, 6), max_size=4).flatmap(
    lambda shape: st.tuples(
        st.just(shape),
        *[st.permutations(range(len(shape)))] * 2,
        *[st.lists(st.sampled_from([-2, -1, 1, 3]), min_size=len(shape), max_size=len(shape))] * 2,
    )
)


def laid_out(shape: list[int], order: Any, steps: list[int], dtype: str) -> np.ndarray[Any, Any]:
    """An array of `shape` whose dimensions lie in `order`, with gaps, some backward."""
    full = [shape[dim] * abs(steps[dim]) for dim in order]
    base = np.zeros(full, dtype)
    index: Any = (*(slice(None, None, step) for step in steps), ...)
    turned: np.ndarray[Any, Any] = base.transpose([list(order).index(dim) for dim in range(len(shape))])[index]
    return turned


@given(layouts, st.sampled_from(["int8", "float16", "int32", "float64", "complex128"]))
def test_every_layout_is_copied_as_numpy_copies_it(layout: Any, dtype: str) -> None:
    shape, left_order, right_order, left_steps, right_steps = layout
    to = laid_out(shape, left_order, left_steps, dtype)
    source = laid_out(shape, right_order, right_steps, dtype)
    assert to.shape == source.shape == tuple(shape)
    source[...] = np.arange(1, source.size + 1).reshape(shape).astype(dtype)
    tm.from_numpy(to).copy_(tm.from_numpy(source))
    assert np.array_equal(to, source)
    if to.base is not None:
        assert np.count_nonzero(to.base) == np.count_nonzero(source)


def test_large_copies_are_right_in_every_layout() -> None:
    array = np.random.default_rng(3).integers(0, 2**31, (300, 70, 64), dtype=np.int32)
    for view in (array, array.T, array[::-1], array[:, ::3], array.transpose(1, 0, 2), array.transpose(2, 0, 1)):
        assert np.array_equal(tm.from_numpy(view).clone().numpy(), view)


def test_a_filled_tensor_may_be_strided() -> None:
    array = np.zeros((6, 8), np.int16)
    tm.from_numpy(array[::2, ::-3]).fill_(5)
    expected = np.zeros((6, 8), np.int16)
    expected[::2, ::-3] = 5
    assert np.array_equal(array, expected)


# --- On a stream ---


def test_a_copy_on_a_stream_is_under_way_until_the_stream_has_passed() -> None:
    gate = Gate()
    tensor = tm.full(1000, 3.0)
    with Stream(host()) as stream:
        gate.hold(stream)
        away = tensor.to("pinned", stream=stream)
        assert not away.ready and not away[1:].ready and not away.transfer_report.done
        assert away.transfer_report.seconds is None and "under way" in repr(away.transfer_report)
        gate.open()
        assert away.wait() is away and away.ready
        assert away.transfer_report.seconds > 0
        assert away.tolist() == [3.0] * 1000


def test_the_source_stays_alive_until_the_copy_is_done_and_no_longer() -> None:
    gate = Gate()
    stack = tm.mr.StatisticsResourceAdaptor(tm.mr.HostMemoryResource())
    with Stream(host()) as stream:
        gate.hold(stream)
        foreign = np.full(1000, 7.0, np.float32)
        gone = weakref.ref(foreign)
        away = tm.from_dlpack(foreign).to("pinned", stream=stream)
        ours = tm.full(1000, 8.0, mr=stack).to("pinned", stream=stream)
        del foreign
        gc.collect()
        assert gone() is not None and stack.bytes_outstanding == 4000
        gate.open()
        stream.synchronize()
        assert away.tolist() == [7.0] * 1000 and ours.tolist() == [8.0] * 1000
    stack.reap_pending()
    assert gone() is None
    assert stack.bytes_outstanding == 0


def test_a_dropped_destination_does_no_harm() -> None:
    gate = Gate()
    with Stream(host()) as stream:
        gate.hold(stream)
        tm.full(100_000, 1.0).to("pinned", stream=stream)
        gc.collect()
        gate.open()
    reap_streams()
    assert held_for_streams() == 0


def test_readers_of_a_copy_that_is_under_way_wait_for_it() -> None:
    gate = Gate()
    with Stream(host()) as stream, Stream(host()) as other:
        gate.hold(stream)
        away = tm.full(1000, 3.0).to("pinned", stream=stream)
        back = away.to("main", stream=other)
        assert not back.ready
        gate.open()
        assert np.from_dlpack(back).tolist() == [3.0] * 1000
        assert memoryview(away)[0] == 3.0


def test_closing_does_not_wait_for_the_copy_that_is_under_way() -> None:
    gate = Gate()
    with Stream(host()) as stream:
        gate.hold(stream)
        away = tm.full(1000, 3.0).to("pinned", stream=stream)
        away.close()
        assert away.closed
        gate.open()


def test_a_destroyed_stream_is_refused_and_nothing_is_left_behind() -> None:
    stream = Stream(host())
    stream.close()
    tensor = tm.zeros(10)
    with pytest.raises(errors.StreamMisuse):
        tensor.to("pinned", stream=stream)
    assert held_for_streams() == 0 and tensor.ready


def test_empty_and_scalar_tensors_move() -> None:
    assert tm.zeros((0, 3)).to("pinned").shape == (0, 3)
    assert tm.full((), 4.0).to("pinned").item() == 4.0
