"""NumPy arrays over blocks."""

import gc
from collections.abc import Callable

import numpy as np
import pytest

from tensormem import dtypes, errors, mr
from tensormem.interop.numpy import as_array
from tensormem.streams import Stream, StreamLike


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
    host.deallocate(block)
    with pytest.raises(errors.UseAfterFree):
        as_array(block)


class PassingOn(mr.DeviceMemoryResource):
    """An adaptor written in Python that counts what it is asked to take back."""

    taken_back = 0

    def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
        super().deallocate(block, stream)
        self.taken_back += 1


STACKS: list[Callable[[mr.DeviceMemoryResource], mr.DeviceMemoryResource]] = [
    lambda host: host,
    mr.PoolMemoryResource,
    PassingOn,
    lambda host: mr.PoolMemoryResource(PassingOn(host)),
    lambda host: mr.StatisticsResourceAdaptor(PassingOn(mr.PoolMemoryResource(host))),
]


@pytest.mark.parametrize("build", STACKS)
def test_a_block_under_an_array_cannot_be_given_back(
    host: mr.HostMemoryResource, build: Callable[[mr.DeviceMemoryResource], mr.DeviceMemoryResource]
) -> None:
    stack = build(host)
    block = stack.allocate(1024)
    array = as_array(block, "i4")
    row = array[3:5]
    before = stack.counters
    with mr.use_resource(stack), Stream(stack.driver) as stream, pytest.raises(BufferError, match="1 views"):
        stack.deallocate(block, stream)
    del array
    with pytest.raises(BufferError):
        stack.deallocate(block)
    assert (stack.counters, block.state) == (before, "live")
    row[:] = 7
    assert row.tolist() == [7, 7]
    del row
    stack.deallocate(block)
    assert (block.state, stack.bytes_outstanding) == ("freed", 0)


def test_a_python_adaptor_is_not_told_of_what_did_not_go_back(host: mr.HostMemoryResource) -> None:
    adaptor = PassingOn(host)
    block = adaptor.allocate(64)
    array = as_array(block)
    with pytest.raises(errors.StillExported):
        adaptor.deallocate(block)
    assert adaptor.taken_back == 0
    del block
    gc.collect()
    assert (adaptor.taken_back, host.bytes_outstanding) == (0, array.nbytes)
    del array
    gc.collect()
    assert (adaptor.taken_back, host.bytes_outstanding) == (1, 0)


def test_a_block_under_an_array_stays_while_a_launch_uses_it(host: mr.HostMemoryResource) -> None:
    pool = mr.PoolMemoryResource(host)
    block = pool.allocate(1024)
    array = as_array(block)
    with Stream(pool.driver) as stream:
        with pool.launch(stream) as use:
            use.write(block)
            stream.launch(array.fill, 3)
            with pytest.raises(errors.StillExported):
                pool.deallocate(block, stream)
        stream.synchronize()
        assert array.tolist() == [3] * 1024
        del array
        pool.deallocate(block, stream)
    pool.reap_pending()
    assert (block.state, pool.bytes_outstanding) == ("freed", 0)


def test_what_could_not_become_an_array_holds_nothing(host: mr.HostMemoryResource) -> None:
    block = host.allocate(100)
    for shape in (101, -1):
        with pytest.raises(errors.InvalidArgument):
            as_array(block, "u1", shape)
    with pytest.raises(errors.InvalidSize):
        as_array(block, "i8")
    gc.collect()
    assert block.export_count == 0
    host.deallocate(block)


def test_no_view_is_made_of_a_block_that_is_going_back(host: mr.HostMemoryResource) -> None:
    class Curious(mr.DeviceMemoryResource):
        refused = 0

        def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
            try:
                memoryview(going)
            except errors.UseAfterFree:
                self.refused += 1
            super().deallocate(block, stream)

    curious = Curious(host)
    stack = mr.StatisticsResourceAdaptor(curious)
    going = stack.allocate(64)
    stack.deallocate(going)
    assert (curious.refused, host.bytes_outstanding) == (1, 0)


def test_memory_that_the_cpu_cannot_touch_is_refused() -> None:
    class Remote(mr.HostMemoryResource):
        is_host_accessible = property(lambda self: False)

    with pytest.raises(errors.InvalidArgument, match="CPU cannot touch"):
        as_array(Remote().allocate(64))


def test_a_block_that_was_never_made_says_so() -> None:
    block = mr.DeviceBlock.__new__(mr.DeviceBlock)
    assert repr(block) == "<DeviceBlock (never made)>"
    for use in (memoryview, lambda block: block.state, lambda block: block.mr, lambda block: block.id):
        with pytest.raises(errors.InvalidArgument, match="never made"):
            use(block)
    with pytest.raises(errors.ForeignBlock):
        mr.HostMemoryResource().deallocate(block)
