"""Tensors in other libraries and back, by the modules of tensormem.interop, with the real libraries."""

import gc
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow
import pytest
import safetensors.numpy
import torch
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st

import tensormem as tm
from tensormem import errors, interop


def test_torch_shares_memory_both_ways_and_gradients_stay_there() -> None:
    tensor = tm.zeros((2, 3))
    other = interop.torch.to_torch(tensor)
    other[1, 2] = 5
    assert tensor[1, 2].item() == 5
    weights = torch.ones(3, requires_grad=True)
    ours = interop.torch.from_torch(weights)
    ours.fill_(2)
    assert weights.tolist() == [2.0] * 3


def test_torch_is_refused_read_only_memory_and_given_a_copy_on_request() -> None:
    """It does not look at DLPack's flag: with protected pages behind it, a write would end the process."""
    tensor = tm.arange(3).as_readonly()
    for take in (torch.as_tensor, torch.utils.dlpack.from_dlpack, interop.torch.to_torch):
        with pytest.raises(BufferError, match="PyTorch has no read-only tensors"):
            take(tensor)
        assert take(tensor.clone()).tolist() == [0, 1, 2]
    copied = torch.utils.dlpack.from_dlpack(tensor, copy=True)
    copied[0] = 9
    assert tensor.tolist() == [0, 1, 2] and not np.from_dlpack(tensor).flags.writeable
    assert not np.asarray(tensor).flags.writeable and memoryview(tensor).readonly


def test_jax_arrays_come_in_read_only_and_ours_go_out() -> None:
    array = jax.numpy.arange(6.0).reshape(2, 3)
    tensor = interop.jax.from_jax(array)
    assert tensor.readonly and tensor.tolist() == array.tolist()
    assert interop.jax.to_jax(tm.full((2, 3), 2.0)).sum() == 12
    assert interop.jax.to_jax(tm.from_numpy(np.arange(6).astype("f4").reshape(2, 3)).T).tolist() == [
        [0, 3],
        [1, 4],
        [2, 5],
    ]


def test_tvm_shares_memory_both_ways() -> None:
    tensor = tm.full((2, 2), 3, "int32")
    other = interop.tvm_ffi.to_tvm(tensor)
    assert isinstance(other, tvm_ffi.Tensor) and tuple(other.shape) == (2, 2)
    assert interop.tvm_ffi.from_tvm(other).ptr == tensor.ptr


def test_arrow_shares_memory_both_ways_and_keeps_it() -> None:
    stack = tm.mr.StatisticsResourceAdaptor(tm.mr.HostMemoryResource())
    column = interop.arrow.to_arrow(tm.full(100, 7, "int64", mr=stack))
    gc.collect()
    assert column.to_pylist() == [7] * 100 and stack.allocation_counts.current_count == 1
    del column
    gc.collect()
    assert stack.allocation_counts.current_count == 0
    tensor = interop.arrow.from_arrow(pyarrow.chunked_array([[1.5, 2.5]]))
    assert tensor.tolist() == [1.5, 2.5] and tensor.readonly


def test_arrow_arrays_that_are_no_tensors_are_refused() -> None:
    for column in (pyarrow.array([1, None]), pyarrow.chunked_array([[1], [2]]), pyarrow.array(["a"])):
        with pytest.raises(errors.InvalidArgument):
            interop.arrow.from_arrow(column)
    for tensor in (tm.zeros((2, 2)), tm.zeros(4)[::2], tm.zeros(4, "bool"), tm.empty(4, "bfloat16")):
        with pytest.raises(errors.InvalidArgument):
            interop.arrow.to_arrow(tensor)


# --- safetensors ---


def test_a_file_of_the_real_library_is_read_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    arrays: dict[str, Any] = {
        "weight": np.arange(12, dtype=np.float32).reshape(3, 4),
        "ids": np.arange(5, dtype=np.int64),
        "none": np.zeros((0, 3), np.float16),
    }
    safetensors.numpy.save_file(arrays, path, {"made": "by hand"})
    found = interop.safetensors.load(path)
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
    assert found["weight"].aliases(found["ids"]) and found["weight"].readonly
    away = interop.safetensors.load(path, "pinned")["weight"]
    assert away.space is tm.pinned and not away.readonly and away.tolist() == arrays["weight"].tolist()
    private = interop.safetensors.load(path, mode="c")
    private["weight"].fill_(0)
    assert found["weight"].tolist() == arrays["weight"].tolist()


def test_the_real_library_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    interop.safetensors.save({"a": tm.from_numpy(array).T, "b": tm.zeros(0), "c": tm.full((), 2.0)}, path)
    found = safetensors.numpy.load_file(path)
    assert found["a"].tolist() == array.T.tolist() and found["b"].shape == (0,) and found["c"] == 2.0
    with pytest.raises(errors.InvalidDType):
        interop.safetensors.save({"a": tm.empty(2, "float4_e2m1fn")}, path)


def written(path: Path, header: Any, data: bytes = bytes(16)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.mark.parametrize(
    "header",
    [
        b"no json",
        b"[]",
        b"[" * 100_000,
        {"a": 1},
        {"a": {"dtype": "F32", "shape": [4]}},
        {"a": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}},
        {"a": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}},
        {"a": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}},
        {"a": {"dtype": "F32", "shape": [4], "data_offsets": [4, 16]}},
        {"a": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}},
        {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 2**66]}},
        {"a": {"dtype": "F32", "shape": "4", "data_offsets": [0, 16]}},
    ],
)
def test_broken_headers_are_refused(header: Any, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="no safetensors file"):
        interop.safetensors.load(written(tmp_path / "broken", header))


@pytest.mark.parametrize("data", [b"x", b"12345678", (2**63).to_bytes(8, "little"), b"\xff" * 20])
def test_files_that_are_too_short_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(data)
    with pytest.raises(errors.InvalidArgument):
        interop.safetensors.load(path)


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_random_headers_never_harm(header: bytes, data: bytes) -> None:
    path = Path(tempfile.gettempdir()) / f"tensormem-random-header-{os.getpid()}"
    try:
        interop.safetensors.load(written(path, header, data))
    except errors.InvalidArgument:
        pass
    finally:
        path.unlink()


def test_unpadded_headers_of_old_writers_are_read_by_a_copy(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    header += b" " * (1 - len(header) % 2)
    tensor = interop.safetensors.load(written(tmp_path / "old", header, np.array([1, 2], "f4").tobytes()))["a"]
    assert tensor.tolist() == [1.0, 2.0] and tensor.ptr % 4 == 0
