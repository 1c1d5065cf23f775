"""NumPy arrays over blocks."""

import gc

import numpy as np
import pytest

from tensormem import dtypes, errors, mr
from tensormem._core import BlockBytes
from tensormem.interop.numpy import as_array


@pytest.fixture
def host() -> mr.HostMemoryResource:
    return mr.HostMemoryResource(zeroed=True)


def test_an_array_is_the_memory_of_the_block_and_keeps_it(host: mr.HostMemoryResource) -> None:
    block = host.allocate(1024)
    array, twin = as_array(block), as_array(block)
    assert array.ctypes.data == block.ptr and array.shape == (1024,) and array.dtype == np.uint8
    array[5] = 77
    assert twin[5] == 77
    row = array[5:6]
    del block, array, twin
    gc.collect()
    assert host.bytes_outstanding == 1024 and row[0] == 77
    del row
    gc.collect()
    assert host.bytes_outstanding == 0


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("<f4"), dtypes.dtype("float32"), "f4"])
def test_every_way_to_name_the_type_is_taken(host: mr.HostMemoryResource, dtype: str) -> None:
    array = as_array(host.allocate(64), dtype, (2, 4))
    assert array.dtype == np.float32 and array.shape == (2, 4) and array.flags.c_contiguous and array.flags.writeable


def test_shapes_up_to_the_block_are_taken(host: mr.HostMemoryResource) -> None:
    block = host.allocate(100)
    assert as_array(block, "u1", 100).shape == (100,)
    assert as_array(block, "u1", (np.int64(10), 10)).shape == (10, 10)
    assert as_array(block, "i8", 12).shape == (12,)
    assert as_array(block, "i8", ()).shape == ()
    assert as_array(block, "i8", (0, 1 << 40)).shape == (0, 1 << 40)
    assert as_array(block, [("a", "i4"), ("b", "u1")], 20).itemsize == 5


@pytest.mark.parametrize("shape", [101, (101,), (10, 11), (1 << 62, 4), (1 << 70,)])
def test_a_shape_beyond_the_block_is_refused(host: mr.HostMemoryResource, shape: int) -> None:
    with pytest.raises(errors.InvalidSize, match="does not fit"):
        as_array(host.allocate(100), "u1", shape)


def test_a_negative_length_and_an_odd_rest_are_refused(host: mr.HostMemoryResource) -> None:
    block = host.allocate(100)
    with pytest.raises(errors.InvalidArgument, match="negative"):
        as_array(block, "u1", (-1, -1))
    with pytest.raises(errors.InvalidSize, match="whole number"):
        as_array(block, "i8")
    with pytest.raises(TypeError):
        as_array(block, "u1", 2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["O", "S0", "no such type", [("a", "O")], dtypes.dtype("bfloat16")])
def test_types_that_plain_bytes_cannot_be_are_refused(host: mr.HostMemoryResource, dtype: str) -> None:
    with pytest.raises(errors.InvalidDType):
        as_array(host.allocate(64), dtype)


def test_a_freed_block_is_refused(host: mr.HostMemoryResource) -> None:
    block = host.allocate(64)
    data = BlockBytes(block)
    host.deallocate(block)
    with pytest.raises(errors.UseAfterFree):
        as_array(block)
    with pytest.raises(errors.UseAfterFree):
        memoryview(data)


def test_memory_that_the_cpu_cannot_touch_is_refused() -> None:
    class Remote(mr.HostMemoryResource):
        is_host_accessible = property(lambda self: False)

    with pytest.raises(errors.InvalidArgument, match="CPU cannot touch"):
        as_array(Remote().allocate(64))


def test_bytes_that_were_never_made_say_so() -> None:
    with pytest.raises(BufferError, match="never made"):
        memoryview(BlockBytes.__new__(BlockBytes))
