"""Fills: any element, any layout, by the driver where the memory is a GPU's, in the order of a stream."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensormem as tm
from tensormem import errors
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing import simulated_gpu
from tensormem.testing.gpus import SimulatedGpu
from tensormem.testing.resources import Gate

VALUES: list[tuple[str, Any]] = [
    ("uint8", 7),
    ("int16", -2),
    ("float32", 1.5),
    ("float64", 2.75),
    ("int64", 0x0102030405060708),
    ("complex64", 1 + 2j),
    ("complex128", 3 - 4j),
]


@pytest.fixture(params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory="64MiB", vendor=request.param) as made:
        yield made


def memsets(gpu: SimulatedGpu) -> int:
    return sum("emset" in line for line in gpu.log())


@pytest.mark.parametrize(("dtype", "value"), VALUES)
@pytest.mark.parametrize("where", ["whole", "backward", "columns", "crossed"])
def test_every_element_size_and_layout_is_filled_as_numpy_fills_it(dtype: str, value: Any, where: str) -> None:
    for space in ("main", "gpu:0"):
        with simulated_gpu(memory="64MiB"):
            tensor = tm.zeros((6, 8), dtype, space=space)
            expected = np.zeros((6, 8), dtype)
            index: Any = {"whole": ..., "backward": np.s_[::-2], "columns": np.s_[:, 1::3], "crossed": np.s_[1:4, 2:5]}
            tensor[index[where]].fill_(value)
            expected[index[where]] = value
            assert np.array_equal(tensor.to("main").wait().numpy(), expected)
            del tensor


def test_a_gpu_fills_its_memory_itself_and_needs_it_once(gpu: SimulatedGpu) -> None:
    before = memsets(gpu)
    tensor = tm.zeros(60 << 20, "uint8", space="gpu:0")
    assert memsets(gpu) - before == 1
    assert not any("emcpy" in line for line in gpu.log())
    del tensor


@pytest.mark.parametrize(
    ("dtype", "value", "calls"),
    [("float32", 1.5, 1), ("float64", 0, 1), ("int64", -1, 1), ("float64", 1.5, 2), ("complex128", 1 + 2j, 4)],
)
def test_a_value_takes_a_call_for_each_of_its_words(gpu: SimulatedGpu, dtype: str, value: Any, calls: int) -> None:
    tensor = tm.empty(1000, dtype, space="gpu:0")
    before = memsets(gpu)
    tensor.fill_(value)
    # HIP has no fill of a column: what a few calls filled is copied behind itself.
    assert memsets(gpu) - before == calls and len(gpu.log()) < 100
    assert tensor.to("main").tolist() == [value] * 1000


def test_packed_elements_are_filled() -> None:
    with simulated_gpu(memory="64MiB"):
        for space in ("main", "gpu:0"):
            tensor = tm.full(7, -3, "int4", space=space)
            view = tm.Tensor(tensor.storage, "uint8", (4,)).to("main")
            assert view.tolist() == [0xDD] * 4
            assert tm.Tensor(tm.zeros(9, "uint2").storage, "uint8", (3,)).tolist() == [0, 0, 0]
            del tensor, view
    with pytest.raises(errors.InvalidArgument, match="from -8 to 7"):
        tm.full(2, 8, "int4")


def test_a_fill_on_a_stream_is_under_way_until_the_stream_has_passed() -> None:
    gate = Gate()
    with Stream(host()) as stream:
        tensor = tm.zeros(1000)
        gate.hold(stream)
        tensor.fill_(2.0, stream=stream)
        assert not tensor.ready
        gate.open()
        assert tensor.tolist() == [2.0] * 1000


def test_a_fill_on_a_gpu_stream_comes_after_copies_and_before_them(gpu: SimulatedGpu) -> None:
    with Stream(gpu.drivers[0]) as stream, Stream(gpu.drivers[0]) as other:
        gate = Gate()
        tensor = tm.empty(1000, space="gpu:0")
        gate.hold(stream)
        tensor.fill_(3.0, stream=stream)
        back = tensor.to("pinned", stream=other)
        assert not back.ready
        gate.open()
        assert back.wait().tolist() == [3.0] * 1000


def test_main_memory_is_filled_in_the_order_of_a_gpu_stream(gpu: SimulatedGpu) -> None:
    with Stream(gpu.drivers[0]) as stream:
        gate = Gate()
        tensor = tm.zeros(1000)
        gate.hold(stream)
        tensor.fill_(3.0, stream=stream)
        assert not tensor.ready
        gate.open()
        assert tensor.tolist() == [3.0] * 1000


def test_zeros_of_a_gigabyte_touch_no_pages() -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tensor = tm.zeros(1 << 30, "uint8")
    assert tensor[1 << 29].item() == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("size", [10, 5000, 300_000, 3_000_000])
def test_zeros_are_zero_also_where_memory_was_used_before(size: int) -> None:
    pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    guarded = tm.mr.DebugGuardResourceAdaptor(tm.mr.HostMemoryResource())
    for mr in (None, pool, guarded, tm.mr.PinnedMemoryResource()):
        for _ in range(3):
            tensor = tm.zeros(size, "uint8", mr=mr)
            assert not tensor.numpy().any()
            tensor.fill_(255)
            del tensor


def test_a_readonly_tensor_is_not_filled() -> None:
    with pytest.raises(errors.InvalidArgument, match="read-only"):
        tm.zeros(3).as_readonly().fill_(1)
