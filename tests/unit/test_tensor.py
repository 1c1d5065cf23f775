"""Tensors: made, described, viewed, shown, closed. NumPy is the model for views."""

import copy
import ctypes
import gc
import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensormem as tm
from tensormem import errors


def numbers(*shape: int) -> tuple[np.ndarray[Any, Any], tm.Tensor]:
    """An array of 0, 1, 2, ... and a tensor over the same memory."""
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    return array, tm.from_numpy(array)


# --- Making ---


def test_a_tensor_says_what_it_is() -> None:
    tensor = tm.empty((2, 3, 4), "int16")
    assert (tensor.shape, tensor.strides, tensor.ndim, tensor.size) == ((2, 3, 4), (12, 4, 1), 3, 24)
    assert (tensor.itemsize, tensor.nbytes, tensor.offset) == (2, 48, 0)
    assert (tensor.space, tensor.memory, tensor.dtype) == (tm.main, "mem", tm.dtype("int16"))
    assert tensor.is_contiguous and tensor.ready and not tensor.readonly and len(tensor) == 2


@pytest.mark.parametrize("shape", [(), 5, (0,), (3, 0, 2), [2, 2], (1,) * 64])
def test_every_shape_can_be_made(shape: Any) -> None:
    assert tm.zeros(shape, "uint8").numpy().shape == np.zeros(shape).shape


@pytest.mark.parametrize("shape", [-1, (2, -3), "ab", 2.5, None, (2, "x"), (1,) * 65])
def test_what_is_no_shape_is_refused(shape: Any) -> None:
    with pytest.raises(errors.InvalidArgument):
        tm.empty(shape)


@pytest.mark.parametrize("shape", [2**62, (2**40, 2**40), 2**70])
def test_more_elements_than_any_memory_are_refused(shape: Any) -> None:
    with pytest.raises((errors.InvalidSize, errors.OutOfMemory)):
        tm.empty(shape)


def test_full_sets_every_element_and_refuses_what_does_not_fit() -> None:
    assert tm.full((2, 2), 7, "int8").tolist() == [[7, 7], [7, 7]]
    assert tm.full(2, True, "bool").tolist() == [True, True]
    assert tm.full((), 1.5, "bfloat16").item() == 1.5
    for value, dtype in [(300, "int8"), (-1, "uint32"), ("x", "float32"), (1j, "float64"), (1.5, "int32")]:
        with pytest.raises(errors.InvalidArgument):
            tm.full(3, value, dtype)


def test_memory_comes_from_the_current_resource_and_goes_back() -> None:
    stack = tm.mr.StatisticsResourceAdaptor(tm.mr.HostMemoryResource())
    with tm.use_resource(stack):
        tensor = tm.empty(1000, "uint8", tag="mine")
    assert stack.allocation_counts.current_bytes == 1000
    assert tensor.storage.owner.tag == "mine"
    view = tensor[10:]
    del tensor
    assert stack.allocation_counts.current_bytes == 1000
    del view
    assert stack.allocation_counts.current_bytes == 0


def test_a_resource_written_in_python_serves_tensors() -> None:
    class Counting(tm.mr.DeviceMemoryResource):
        calls = 0

        def allocate(self, *args: Any, **options: Any) -> tm.mr.DeviceBlock:
            self.calls += 1
            return super().allocate(*args, **options)

    counting = Counting(tm.mr.HostMemoryResource())
    assert tm.zeros(4, mr=counting).tolist() == [0.0] * 4
    assert counting.calls == 1


def test_a_refused_budget_leaves_nothing_behind() -> None:
    limited = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), 100)
    with pytest.raises(errors.OutOfBudget):
        tm.empty(200, "uint8", mr=limited)
    assert limited.bytes_outstanding == 0


def test_a_space_and_a_resource_of_another_space_are_refused() -> None:
    with pytest.raises(errors.CrossSpaceError):
        tm.empty(4, space="main", mr=tm.mr.PinnedMemoryResource())


def test_pinned_memory_is_a_space_of_its_own() -> None:
    tensor = tm.zeros(4, space="pinned")
    assert tensor.space is tm.pinned and tensor.__dlpack_device__() == (1, 0)
    assert tm.empty(4, mr=tm.mr.PinnedMemoryResource()).space is tm.pinned


def test_a_gpu_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(errors.MemoryUnavailable, match="gpu:7"):
        tm.empty(4, space=tm.gpu(7))


def test_unknown_memory_is_refused_and_missing_memory_is_unavailable() -> None:
    with pytest.raises(errors.InvalidMemoryType):
        tm.empty(4, memory="Mem")
    with pytest.raises(errors.InvalidArgument):
        tm.empty(4, memory="mem", use="share")
    with pytest.raises(errors.InvalidArgument):
        tm.empty(4, use="lunch")


# --- Over memory of others ---


def test_a_tensor_over_a_buffer_locks_it_and_sees_its_changes() -> None:
    memory = bytearray(8)
    tensor = tm.from_buffer(memory, "uint16")
    memory[0] = 1
    assert tensor.tolist() == [1, 0, 0, 0]
    with pytest.raises(BufferError):
        memory.append(1)
    del tensor
    memory.append(1)


def test_a_buffer_says_its_own_type_shape_and_strides() -> None:
    array = np.arange(12.0).reshape(3, 4)[::-1, ::2]
    tensor = tm.from_buffer(array)
    assert (tensor.dtype, tensor.shape, tensor.strides) == (tm.dtype("float64"), (3, 2), (-4, 2))
    assert tensor.tolist() == array.tolist()


def test_read_only_buffers_give_read_only_tensors() -> None:
    tensor = tm.from_buffer(b"abcd")
    assert tensor.readonly
    with pytest.raises(errors.InvalidArgument):
        tensor.fill_(0)
    assert memoryview(tensor).readonly
    with pytest.raises(BufferError):
        tm.from_buffer(b"abcd", readonly=False)


def test_a_pointer_keeps_its_owner_and_lets_it_go_once() -> None:
    class Owner:
        released = 0

        def release(self) -> None:
            self.released += 1

    memory = ctypes.create_string_buffer(16)
    owner = Owner()
    tensor = tm.from_pointer(ctypes.addressof(memory), 16, "int32", (2, 2), owner=owner)
    view = tensor.T
    tensor.close()
    tensor.close()
    assert owner.released == 1
    with pytest.raises(errors.UseAfterFree):
        view.numpy()
    del tensor, view
    gc.collect()
    assert owner.released == 1


def test_a_dropped_pointer_tensor_releases_its_owner_once() -> None:
    released: list[int] = []

    class Owner:
        def release(self) -> None:
            released.append(1)

    memory = ctypes.create_string_buffer(16)
    tensor = tm.from_pointer(ctypes.addressof(memory), 16, owner=Owner())
    del tensor
    gc.collect()
    assert released == [1]


def test_an_owner_in_a_cycle_of_garbage_is_whole_when_it_is_released() -> None:
    memory = ctypes.create_string_buffer(16)
    released: list[str] = []

    class Owner:
        def __init__(self) -> None:
            self.name = "mine"
            self.tensor: tm.Tensor | None = None

        def release(self) -> None:
            released.append(self.name)

    owner = Owner()
    owner.tensor = tm.from_pointer(ctypes.addressof(memory), 16, owner=owner)
    del owner
    assert released == []
    gc.collect()
    assert released == ["mine"]


@pytest.mark.parametrize(("ptr", "nbytes", "shape"), [(0, 16, 4), (4096, 8, 4), (2**64 - 4, 8, 2)])
def test_pointers_to_no_memory_are_refused(ptr: int, nbytes: int, shape: int) -> None:
    with pytest.raises(errors.InvalidArgument):
        tm.from_pointer(ptr, nbytes, "int32", shape, owner=None)


def test_wrap_takes_every_protocol_and_refuses_the_rest() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    tensor = tm.wrap(array)
    assert tensor.tolist() == array.tolist() and tm.wrap(tensor) is tensor

    class Interface:
        __array_interface__ = array.__array_interface__

    assert tm.wrap(Interface()).tolist() == array.tolist()
    assert tm.wrap(bytearray(3)).shape == (3,)
    with pytest.raises(errors.InvalidArgument):
        tm.wrap(3.5)


def test_arrays_that_are_not_numbers_are_refused() -> None:
    for array in (np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]"), np.zeros(2, ">i4")):
        with pytest.raises(errors.InvalidDType):
            tm.from_numpy(array)


def test_strides_that_are_no_whole_elements_are_refused() -> None:
    field = np.zeros(4, dtype=[("a", "i1"), ("b", "i4")])["b"]
    with pytest.raises(BufferError):
        tm.from_numpy(field)


def test_a_file_is_mapped_read_only_copy_on_write_and_shared(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(6, dtype=np.int32).tobytes())
    reading = tm.from_file(path, "int32", (2, 3))
    assert reading.readonly and reading.tolist() == [[0, 1, 2], [3, 4, 5]]
    private = tm.from_file(path, "int32", mode="c")
    private.fill_(9)
    assert reading.tolist() == [[0, 1, 2], [3, 4, 5]]
    shared = tm.from_file(path, "int32", 2, mode="r+", offset=8)
    shared.fill_(7)
    assert reading.tolist() == [[0, 1, 7], [7, 4, 5]]
    assert path.read_bytes()[8:12] == b"\x07\0\0\0"


def test_files_that_cannot_be_mapped_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with pytest.raises(errors.InvalidSize):
        tm.from_file(path)
    path.write_bytes(b"abc")
    wrong: list[dict[str, Any]] = [{"dtype": "int32"}, {"shape": 4}, {"mode": "w"}, {"offset": 5}]
    for options in wrong:
        with pytest.raises(errors.InvalidArgument):
            tm.from_file(path, **options)
    with pytest.raises(FileNotFoundError):
        tm.from_file(tmp_path / "nothing")


# --- Views ---

indices = st.one_of(
    st.integers(-5, 4),
    st.builds(slice, *[st.none() | st.integers(-7, 7)] * 2, st.none() | st.integers(-3, 3).filter(bool)),
    st.just(Ellipsis),
    st.none(),
)


@given(st.lists(st.integers(1, 5), max_size=4), st.lists(indices, max_size=5))
def test_views_are_those_of_numpy(shape: list[int], index: list[Any]) -> None:
    array, tensor = numbers(*shape)
    try:
        expected = array[tuple(index)]
    except IndexError:
        with pytest.raises(IndexError):
            tensor[tuple(index)]
        return
    view = tensor[tuple(index)]
    assert view.shape == np.shape(expected)
    assert np.array_equal(view.numpy(), expected)
    assert view.aliases(tensor)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms())
def test_permutations_reshapes_and_copies_are_those_of_numpy(shape: list[int], random: Any) -> None:
    array, tensor = numbers(*shape)
    axes = list(range(len(shape)))
    random.shuffle(axes)
    turned, expected = tensor.permute(*axes), array.transpose(axes)
    assert np.array_equal(turned.numpy(), expected)
    assert np.array_equal(turned.contiguous().numpy(), expected) and turned.contiguous().is_contiguous
    flat = turned.contiguous().reshape(-1)
    assert np.array_equal(flat.numpy(), expected.reshape(-1))
    try:
        view = turned.reshape(array.size)
    except errors.InvalidArgument:
        assert not np.shares_memory(expected.reshape(array.size), array)
    else:
        assert np.array_equal(view.numpy(), expected.reshape(array.size))


def test_select_squeeze_unsqueeze_and_broadcast() -> None:
    array, tensor = numbers(2, 1, 3)
    assert tensor.select(-1, 2).tolist() == array[..., 2].tolist()
    assert tensor.squeeze().shape == tensor.squeeze(1).shape == (2, 3)
    assert tensor.unsqueeze(0).shape == (1, 2, 1, 3) and tensor.unsqueeze(-1).shape == (2, 1, 3, 1)
    assert tensor.transpose(0, -1).tolist() == array.swapaxes(0, -1).tolist()
    assert tensor.T.tolist() == array.T.tolist()
    wide = tensor.broadcast_to((4, 2, 5, 3))
    assert np.array_equal(wide.numpy(), np.broadcast_to(array, (4, 2, 5, 3))) and wide.readonly


@pytest.mark.parametrize(
    "mistake",
    [
        lambda t: t.select(3, 0),
        lambda t: t.permute(0, 0),
        lambda t: t.permute(0),
        lambda t: t.squeeze(0),
        lambda t: t.unsqueeze(5),
        lambda t: t.broadcast_to((3, 3)),
        lambda t: t.broadcast_to(3),
        lambda t: t.reshape(7),
        lambda t: t.reshape(-1, -1),
        lambda t: t.T.reshape(6),
        lambda t: t.set_logical_shape(7),
        lambda t: tm.Tensor(t.storage, "int32", 6, offset=4),
        lambda t: tm.Tensor(t.storage, "int32", 6, strides=(-1,)),
        lambda t: tm.Tensor(t.storage, "int32", 6, strides=(1, 1)),
        lambda t: tm.Tensor(t.storage, "int32", 6, offset=-4),
    ],
)
def test_views_out_of_range_are_refused(mistake: Any) -> None:
    _, tensor = numbers(2, 3)
    with pytest.raises(errors.InvalidArgument):
        mistake(tensor)


def test_indices_out_of_range_and_of_no_kind_are_refused() -> None:
    _, tensor = numbers(2, 3)
    for index in (2, -3, (0, 3), (0, 0, 0)):
        with pytest.raises(IndexError):
            tensor[index]
    nonsenses: list[Any] = ["a", 1.5, True, [0, 1]]
    for nonsense in nonsenses:
        with pytest.raises(TypeError):
            tensor[nonsense]


def test_a_smaller_logical_shape_uses_the_same_memory() -> None:
    _, tensor = numbers(2, 3)
    assert tensor.set_logical_shape((2, 2)).tolist() == [[0, 1], [2, 3]]


def test_packed_elements_have_no_views_but_reshape() -> None:
    tensor = tm.empty((4, 2), "float4_e2m1fn")
    assert tensor.nbytes == 4 and tensor.reshape(8).shape == (8,)
    with pytest.raises(errors.NotSupported):
        tensor[1:]
    with pytest.raises(errors.NotSupported):
        tensor[0]
    with pytest.raises(errors.NotSupported):
        tensor.broadcast_to((2, 4, 2))


# --- Life ---


def test_a_tensor_is_hashed_by_identity_and_weakly_referable() -> None:
    tensor = tm.zeros(3)
    assert {tensor: 1}[tensor] == 1 and tensor != tm.zeros(3)
    reference = weakref.ref(tensor)
    del tensor
    assert reference() is None


def test_a_tensor_of_several_elements_is_neither_true_nor_false() -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        bool(tm.zeros(3))


def test_closing_waits_for_every_export_and_then_refuses_every_use() -> None:
    tensor = tm.zeros(3)
    array = tensor.numpy()
    capsule = tensor.__dlpack__()
    assert tensor.storage.export_count == 2
    with pytest.raises(BufferError, match="in use 2 times"):
        tensor.close()
    assert array.sum() == 0
    del array, capsule
    with tensor:
        assert tensor.storage.export_count == 0
    assert tensor.closed and "closed" in repr(tensor)
    for use in (tensor.numpy, tensor.__dlpack__, tensor.tolist, lambda: tensor.ptr, lambda: memoryview(tensor)):
        with pytest.raises(errors.UseAfterFree):
            use()


def test_an_owner_that_refers_to_the_tensor_is_collected() -> None:
    class Owner:
        tensor: tm.Tensor

    memory = ctypes.create_string_buffer(4)
    owner = Owner()
    owner.tensor = tm.from_pointer(ctypes.addressof(memory), 4, owner=owner)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_ids_are_never_given_twice() -> None:
    seen = {tm.empty(1).storage.id for _ in range(100)}
    assert len(seen) == 100


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["int32", "bfloat16", "complex64", "float4_e2m1fn"])
def test_tensors_survive_pickling(protocol: int, dtype: str) -> None:
    tensor = tm.zeros((2, 4), "uint8") if dtype == "float4_e2m1fn" else tm.full((2, 4), 1, dtype)
    if dtype == "float4_e2m1fn":
        tensor = tm.Tensor(tensor.storage, dtype, (4, 4))
    again = pickle.loads(pickle.dumps(tensor, protocol))
    assert (again.shape, again.dtype, again.space) == (tensor.shape, tensor.dtype, tensor.space)
    assert bytes(tm._core.reinterpret(again, "uint8")) == bytes(tm._core.reinterpret(tensor, "uint8"))
    assert not again.readonly and not again.aliases(tensor)


def test_bytes_go_out_of_band_without_a_copy() -> None:
    tensor = tm.full(1000, 2.0)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(tensor, 5, buffer_callback=buffers.append)
    assert len(data) < 500 and len(buffers) == 1
    again = pickle.loads(data, buffers=buffers)
    tensor.fill_(3.0)
    assert again.tolist() == [3.0] * 1000


def test_strided_pinned_and_empty_tensors_survive_pickling() -> None:
    array, tensor = numbers(3, 4)
    assert pickle.loads(pickle.dumps(tensor.T[::-1])).tolist() == array.T[::-1].tolist()
    assert pickle.loads(pickle.dumps(tensor.to("pinned"))).space is tm.pinned
    assert pickle.loads(pickle.dumps(tensor[:0], 5)).shape == (0, 4)
    assert pickle.loads(pickle.dumps(tensor.as_readonly(), 5)).readonly


def test_copies_of_tensors_are_tensors_of_their_own() -> None:
    array, tensor = numbers(2, 3)
    for again in (copy.copy(tensor), copy.deepcopy(tensor), tensor.clone()):
        assert again.tolist() == array.tolist() and not again.aliases(tensor)


# --- Looks ---


def test_a_tensor_shows_its_values_type_shape_and_space() -> None:
    _, tensor = numbers(2, 2)
    assert repr(tensor) == "tm.Tensor([[0, 1],\n           [2, 3]], int32, (2, 2), main)"
    assert "..." in repr(tm.zeros(100)) and len(repr(tm.zeros((100, 100)))) < 1000
    assert repr(tm.zeros((), "int8")) == "tm.Tensor(0, int8, (), main)"
    assert repr(tm.empty(4, "float8_e4m3fn")) == "<tm.Tensor float8_e4m3fn, (4,), main>"
    assert "<table>" in tensor._repr_html_() and "int32" in tensor._repr_html_()


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", "float32", "complex64", "complex128", "bfloat16"]
)
def test_values_come_back_as_they_were_set(dtype: str) -> None:
    assert tm.full((2, 2), 1, dtype)[::-1].tolist() == [[1, 1], [1, 1]]
    with pytest.raises(errors.InvalidArgument):
        tm.full((2, 2), 1, dtype).item()


def test_numpy_sees_types_of_ml_dtypes() -> None:
    array = tm.full((2, 3), 1.5, "bfloat16").T.numpy()
    assert array.dtype.name == "bfloat16" and array.astype("float32").tolist() == [[1.5, 1.5]] * 3


def test_a_block_under_a_tensor_cannot_be_given_back_by_hand() -> None:
    mr = tm.mr.HostMemoryResource()
    tensor = tm.zeros(4, mr=mr)
    block = tensor.storage.owner
    with pytest.raises(errors.StillExported):
        mr.deallocate(block)
    assert tensor.tolist() == [0.0] * 4
    tensor.close()
    mr.deallocate(block)
    assert mr.bytes_outstanding == 0
    with pytest.raises(errors.UseAfterFree):
        tensor.numpy()
