"""What every user of NumPy or PyTorch types in the first minute: scalars, equality, factories."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tensormem as tm
from tensormem import errors
from tensormem.testing import simulated_gpu

_NUMBERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16"]
_NUMBERS += ["float32", "float64"]


@pytest.mark.parametrize("dtype", _NUMBERS)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_becomes_a_number(dtype: str, shape: tuple[int, ...]) -> None:
    scalar = tm.full(shape, 1, dtype)
    assert (int(scalar), float(scalar), complex(scalar), bool(scalar)) == (1, 1.0, 1 + 0j, True)
    assert not tm.zeros(shape, dtype)


def test_a_byte_is_its_value_and_not_its_digit() -> None:
    assert int(tm.full((), 53, "uint8")) == 53 and float(tm.full((), 53, "uint8")) == 53.0
    assert float(tm.full((), 2.5)) == 2.5 and complex(tm.full((), 1 - 2j, "complex64")) == 1 - 2j
    assert int(tm.arange(10)[7]) == 7 and int(tm.arange(10)[::-2][1]) == 7


@pytest.mark.parametrize("convert", [int, float, complex])
@pytest.mark.parametrize("shape", [(0,), (2,), (1, 2)])
def test_several_elements_are_not_a_number(convert: Callable[[Any], object], shape: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match="one element"):
        convert(tm.zeros(shape, "uint8"))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(tm.zeros(shape, "uint8"))


def test_only_a_whole_number_without_dimensions_is_an_index() -> None:
    assert [10, 20, 30][tm.full((), 2, "int32")] == 30 and operator.index(tm.full((), 2, "uint64")) == 2
    for wrong in (tm.ones((), "float32"), tm.ones((), "bool"), tm.ones(1, "int64")):
        with pytest.raises(TypeError, match="index"):
            operator.index(wrong)


def test_scalars_of_other_memory_are_read_where_the_cpu_reaches_them() -> None:
    assert int(tm.full((), 7, "int64", memory="shm")) == 7
    with tm.full((), 7, "int64") as closed:
        pass
    with pytest.raises(errors.TensormemError):
        int(closed)
    with simulated_gpu(devices=1):
        far = tm.full((), 7, "int64", space="gpu:0")
        with pytest.raises(errors.CrossSpaceError):
            int(far)
        assert int(far.to("main")) == 7


# --- Equality ---


@pytest.mark.parametrize("name", ["float32", "int64", "bool", "uint8", "complex64"])
def test_a_dtype_equals_whatever_names_it(name: str) -> None:
    dtype = tm.dtype(name)
    assert dtype == name and name == dtype and hash(dtype) == hash(name) and {name: 1}[dtype] == 1
    for same in (np.dtype(name), np.dtype(name).type, getattr(torch, name)):
        assert dtype == same and same == dtype and (dtype != same) is False
    for other in ("float16", np.float16, torch.float16, tm.dtype("float16"), None, 3, object()):
        assert dtype != other and (dtype == other) is False
    assert np.zeros(1, dtype).dtype == dtype and str(dtype) == f"{dtype}" == name


@pytest.mark.parametrize(
    ("short", "name"), [("bf16", "bfloat16"), ("fp16", "float16"), ("half", "float16"), ("double", "float64")]
)
def test_short_names_are_known(short: str, name: str) -> None:
    assert tm.dtype(short) is tm.dtype(name)


@pytest.mark.parametrize(
    "text", ["f8", "<f8", "d", "double", "fp64", "float64", "torch.float64", "float32", "nonsense", ""]
)
def test_a_dtype_equals_a_text_only_with_its_hash(text: str) -> None:
    dtype = tm.dtype("float64")
    assert (dtype == text) is (text == dtype) is (text == "float64") is (dtype in {text}) is (text in {dtype})
    assert (dtype != text) is (text != dtype) is not (dtype == text)
    assert hash(dtype) == hash("float64")


def test_a_space_equals_whatever_means_it() -> None:
    assert tm.main == "main" == tm.main and tm.main == torch.device("cpu") and tm.gpu(1) == torch.device("cuda:1")
    assert tm.gpu(1) == "gpu:1" and tm.gpu(1) in {"gpu:1": 1}
    for other in ("cpu", "host", "cuda:1", "gpu:2"):  # another text has another hash
        for space in (tm.main, tm.gpu(1)):
            assert space != other and other != space and space not in {other}
    assert tm.zeros(1, space="cpu").space is tm.main
    assert tm.main != "pinned" and tm.main != "anywhere" and tm.main != tm.ComputeDevice("cpu") and tm.main != 0
    assert hash(tm.main) == hash("main") and tm.zeros(1).space == "main"


def test_a_size_that_could_mean_two_things_is_refused_with_both() -> None:
    with pytest.raises(errors.InvalidSize, match="MiB or MB"):
        tm.mr.HostMemoryResource().allocate("1M")


# --- Factories ---


def test_nested_lists_become_tensors_as_in_numpy() -> None:
    values: Any
    for values in (
        [1, 2],
        [[1, 2], [3, 4]],
        [1, 2.5],
        [True, False],
        [1j, 2],
        [],
        [[]],
        3,
        2.5,
        True,
        [(1, 2), [3, 4]],
    ):
        made, expected = tm.tensor(values), np.array(values)
        assert made.tolist() == expected.tolist() and made.shape == expected.shape and made.dtype == expected.dtype
        assert tm.asarray(values).tolist() == expected.tolist()
    assert tm.tensor([1, 2], "bf16").tolist() == [1.0, 2.0]


@pytest.mark.parametrize("wrong", [[[1], [2, 3]], [1, [2]], [[1], 2], ["a"], [None], [[1, 2], [3, "b"]]])
def test_lists_that_are_not_a_box_of_numbers_are_refused(wrong: Any) -> None:
    with pytest.raises(errors.InvalidArgument):
        tm.tensor(wrong)


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="300 is not a value of uint8"):
        tm.tensor([1, 300], "uint8")


@pytest.mark.parametrize(
    "arguments", [(5,), (2, 5), (5, 0, -2), (0.5, 3), (3, 1), (0, -1, -0.25), (1, 10, 2.5), (0, 7, 2), (70000,)]
)
def test_ranges_are_numpys(arguments: tuple[float, ...]) -> None:
    made, expected = tm.arange(*arguments), np.arange(*arguments)
    assert made.dtype == expected.dtype and made.tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize("arguments", [(0, 1, 0), (float("inf"),), (float("nan"),), (True,), ("a",)])
def test_a_range_that_is_none_is_refused(arguments: Any) -> None:
    with pytest.raises(errors.InvalidArgument):
        tm.arange(*arguments)


def test_what_has_memory_is_shared_and_copied_on_request() -> None:
    array = np.arange(3)
    shared, copied = tm.asarray(array), tm.asarray(array, copy=True)
    array[0] = 9
    assert shared.tolist() == [9, 1, 2] and copied.tolist() == [0, 1, 2]
    assert tm.asarray(shared) is shared and tm.tensor(array).tolist() == [9, 1, 2]
    assert not tm.tensor(shared).aliases(shared)
    with pytest.raises(ValueError, match="copied"):
        tm.asarray([1, 2], copy=False)
    with pytest.raises(errors.InvalidDType, match="converted"):
        tm.asarray(array, "float32")
    with simulated_gpu(devices=1):
        assert tm.asarray(array, space="gpu:0").to("cpu").tolist() == [9, 1, 2]
        assert tm.tensor([1, 2], space="cuda").space == "gpu:0"
        with pytest.raises(ValueError, match="copied"):
            tm.asarray(array, space="gpu:0", copy=False)


@pytest.mark.parametrize(
    "other", [tm.zeros((2, 3), "int8"), np.zeros((2, 3), "int8"), torch.zeros(2, 3).to(torch.int8)]
)
def test_like_takes_shape_type_and_space(other: Any) -> None:
    assert tm.empty_like(other).shape == (2, 3) and tm.zeros_like(other).tolist() == [[0] * 3] * 2
    assert tm.ones_like(other, "float64").tolist() == [[1.0] * 3] * 2 and tm.full_like(other, 7).dtype == "int8"
    with pytest.raises(errors.InvalidArgument, match="shape"):
        tm.zeros_like([1, 2])


def test_like_a_tensor_of_a_gpu_is_on_the_gpu() -> None:
    with simulated_gpu(devices=2):
        far = tm.zeros(3, space="gpu:1")
        assert tm.ones_like(far).space == "gpu:1" and tm.zeros_like(far, space="main").space == "main"


def test_ones_are_made_where_they_are_wanted() -> None:
    assert tm.ones((2, 2), "uint8").tolist() == [[1, 1], [1, 1]]
    block = tm.ones(2, tag="w").storage.block
    assert tm.ones(3, memory="shm").memory == "shm" and block is not None and block.tag == "w"


def test_lengths_beside_one_another_are_explained() -> None:
    for make in (tm.zeros, tm.empty, tm.ones):
        with pytest.raises(errors.InvalidDType, match="a shape is one argument"):
            make(2, 3)


def test_read_only_memory_stays_read_only() -> None:
    tensor = tm.arange(3).as_readonly()
    assert not np.asarray(tensor).flags.writeable and not np.from_dlpack(tensor).flags.writeable
    assert memoryview(tensor).readonly and tensor[1:].readonly
    with pytest.raises(BufferError, match="read-only"):
        tm.interop.torch.to_torch(tensor)
    assert tm.interop.torch.to_torch(tensor.clone()).tolist() == [0, 1, 2]
