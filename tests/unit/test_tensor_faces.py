"""The faces of a tensor to others: buffer protocol, array interfaces, DLPack in both directions, real libraries."""

import gc
import threading
import zlib
from typing import Any

import jax
import numpy as np
import pyarrow
import pytest
import torch
import tvm_ffi

import tensormem as tm
from tensormem import errors

DTYPES = ["bool", "int8", "int64", "uint16", "float16", "float32", "float64", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_torch_and_ours_see_the_same_bytes(dtype: str) -> None:
    tensor = tm.full((2, 3), 1, dtype)
    array, other = np.from_dlpack(tensor), torch.utils.dlpack.from_dlpack(tensor)
    array[0, 1] = 0
    assert other[0, 1] == 0 and tensor.tolist() == array.tolist()
    assert other.data_ptr() == array.ctypes.data == tensor.ptr
    assert tm.from_dlpack(array).ptr == tm.from_dlpack(other).ptr == tensor.ptr


def test_jax_tvm_and_arrow_exchange_without_a_copy() -> None:
    tensor = tm.full((4, 8), 2.0, alignment=64)
    seen = tvm_ffi.from_dlpack(tensor)
    assert tm.from_dlpack(seen).ptr == tensor.ptr
    theirs = jax.numpy.arange(8.0)
    ours = tm.from_dlpack(theirs)
    assert ours.tolist() == list(range(8)) and ours.ptr == theirs.unsafe_buffer_pointer()
    assert jax.dlpack.from_dlpack(tensor).sum() == 64
    column = pyarrow.array([1, 2, 3], pyarrow.int32())
    assert tm.from_dlpack(column).tolist() == [1, 2, 3] and tm.from_dlpack(column).readonly


def test_bfloat16_goes_to_torch_and_back() -> None:
    tensor = tm.full(3, 1.5, "bfloat16")
    other = torch.utils.dlpack.from_dlpack(tensor)
    assert other.dtype is torch.bfloat16 and other.tolist() == [1.5] * 3
    assert tm.from_dlpack(other).tolist() == [1.5] * 3


def test_strided_views_go_out_and_come_in() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    for view in (array[::-1, :, ::2], array.T, array[:, 1], array[0, 0, 0:0]):
        assert np.array_equal(np.from_dlpack(tm.from_dlpack(view)), view)


def test_our_own_tensor_comes_back_with_its_identity() -> None:
    tensor = tm.zeros((2, 3))
    again = tm.from_dlpack(tensor.T)
    assert again.aliases(tensor) and again.strides == (1, 3)
    assert tm.from_dlpack(tensor.__dlpack__()).aliases(tensor)
    assert tm.from_dlpack(tensor.__dlpack__(max_version=(1, 0))).aliases(tensor)
    gc.collect()
    assert tensor.storage.export_count == 0


def test_a_tensor_lives_as_long_as_what_others_made_of_it() -> None:
    stack = tm.mr.StatisticsResourceAdaptor(tm.mr.HostMemoryResource())
    array = np.from_dlpack(tm.full(1000, 3.0, mr=stack))
    other = torch.utils.dlpack.from_dlpack(tm.full(1000, 4.0, mr=stack))
    gc.collect()
    assert stack.allocation_counts.current_count == 2
    assert array[999] == 3.0 and other[999] == 4.0
    del array, other
    gc.collect()
    assert stack.allocation_counts.current_count == 0


def test_memory_of_others_lives_as_long_as_our_tensor_and_goes_once() -> None:
    array = np.arange(10)
    tensor = tm.from_dlpack(array)[2:5]
    reference = array.base
    del array
    gc.collect()
    assert tensor.tolist() == [2, 3, 4] and reference is None


def test_a_deleter_may_be_called_by_a_thread_that_python_does_not_know() -> None:
    tensor = tm.zeros(10)
    kept = [torch.utils.dlpack.from_dlpack(tensor) for _ in range(20)]
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert tensor.storage.export_count == 0


# --- __dlpack__ by the standard ---


def test_the_capsule_is_versioned_when_the_consumer_knows_versions() -> None:
    tensor = tm.zeros(2)
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 0)))
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(2, 7)))
    for legacy in (None, (0, 8)):
        assert '"dltensor"' in repr(tensor.__dlpack__(max_version=legacy))


def test_read_only_memory_is_flagged_and_has_no_legacy_tensor() -> None:
    tensor = tm.zeros(2).as_readonly()
    assert not np.from_dlpack(tensor).flags.writeable
    with pytest.raises(BufferError):
        tensor.__dlpack__()
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert tm.from_dlpack(frozen).readonly
    with pytest.raises(errors.InvalidArgument):
        tm.from_dlpack(frozen).fill_(1)


def test_a_copy_is_made_when_asked_for_and_never_when_forbidden() -> None:
    tensor = tm.zeros(3)
    assert np.from_dlpack(tensor, copy=True).ctypes.data != tensor.ptr
    assert np.from_dlpack(tensor, copy=False).ctypes.data == tensor.ptr
    assert np.from_dlpack(tensor, device="cpu").ctypes.data == tensor.ptr
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0), copy=False)
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        tensor.__dlpack__(dl_device=(8, 0))


@pytest.mark.parametrize("stream", [0, 1, 2, 77, "x"])
def test_memory_of_the_cpu_has_no_streams(stream: Any) -> None:
    with pytest.raises(errors.StreamMisuse):
        tm.zeros(2).__dlpack__(stream=stream)


def test_nonsense_arguments_are_refused() -> None:
    tensor = tm.zeros(2)
    wrong: list[dict[str, Any]] = [{"max_version": 1}, {"max_version": (1,)}, {"copy": "yes"}, {"dl_device": 1}]
    for options in wrong:
        with pytest.raises(TypeError):
            tensor.__dlpack__(**options)
    assert tensor.storage.export_count == 0


def test_our_consumer_asks_for_copies_and_devices() -> None:
    array = np.arange(3)
    assert tm.from_dlpack(array, copy=True).ptr != array.ctypes.data
    assert tm.from_dlpack(array, copy=False, device="main").ptr == array.ctypes.data
    with pytest.raises(errors.MemoryUnavailable):
        tm.from_dlpack(array, device="gpu:0")
    with pytest.raises((BufferError, ValueError)):
        tm.from_dlpack(array, device=(2, 0))
    with pytest.raises(TypeError):
        tm.from_dlpack(array, copy=1)  # type: ignore[arg-type]


def test_what_does_not_speak_dlpack_is_a_type_error() -> None:
    for nonsense in (3, "x", object(), None):
        with pytest.raises(TypeError, match="does not speak DLPack"):
            tm.from_dlpack(nonsense)


def test_what_a_producer_raises_comes_through() -> None:
    class Broken:
        def __dlpack__(self, **options: object) -> object:
            raise ZeroDivisionError("as it was")

    class Strange:
        def __dlpack__(self, **options: object) -> object:
            return "no capsule"

    with pytest.raises(ZeroDivisionError, match="as it was"):
        tm.from_dlpack(Broken())
    with pytest.raises(TypeError, match="capsule"):
        tm.from_dlpack(Strange())


# --- The C exchange API ---


def test_the_type_offers_the_c_exchange_api() -> None:
    assert "dlpack_exchange_api" in repr(tm.Tensor.__dlpack_c_exchange_api__)
    tensor = tm.zeros(4)
    assert tm._core.time_exchange(tensor, 10) > 0
    assert tensor.storage.export_count == 0
    with pytest.raises(TypeError):
        tm._core.time_exchange(object(), 1)
    with pytest.raises(errors.InvalidArgument):
        tm._core.time_exchange(tensor, 0)


# --- Buffers and interfaces ---


@pytest.mark.parametrize("dtype", [each for each in DTYPES if each not in ("complex64", "float16")])
def test_a_memoryview_has_type_shape_and_strides(dtype: str) -> None:
    tensor = tm.full((2, 3), 1, dtype)
    view = memoryview(tensor[:, ::-1])
    assert view.shape == (2, 3) and view.strides == (3 * tensor.itemsize, -tensor.itemsize)
    assert view.tolist() == tensor.tolist()
    assert tensor.storage.export_count == 1
    view.release()
    assert tensor.storage.export_count == 0


def test_a_buffer_is_refused_where_it_would_lie() -> None:
    tensor = tm.zeros((2, 3))
    with pytest.raises(BufferError):
        memoryview(tm.empty(3, "bfloat16"))
    assert bytes(memoryview(tensor)) == bytes(24)
    with pytest.raises(BufferError):
        zlib.crc32(tensor.T)
    assert len(bytes(tensor)) == 24
    assert not np.asarray(tensor.as_readonly()).flags.writeable
    assert tensor.storage.export_count == 0


def test_array_interfaces_are_offered_where_they_are_true() -> None:
    tensor = tm.zeros((2, 3))[:, ::-1]
    interface = tensor.__array_interface__
    assert interface["data"] == (tensor.ptr, False) and interface["strides"] == (12, -4)
    assert not hasattr(tensor, "__cuda_array_interface__")
    assert not hasattr(tm.empty(3, "bfloat16"), "__array_interface__")
