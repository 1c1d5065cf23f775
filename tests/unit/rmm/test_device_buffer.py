"""`rmm.DeviceBuffer` keeps RMM's manners, on the host and on a simulated GPU."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tensormem as tm
from tensormem import errors, rmm
from tensormem.rmm.pylibrmm.device_buffer import copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host
from tensormem.rmm.pylibrmm.stream import Stream
from tensormem.testing.gpus import SimulatedGpu


@pytest.fixture(params=["host", "gpu"])
def machine(request: pytest.FixtureRequest) -> None:
    if request.param == "gpu":
        request.getfixturevalue("gpu")


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("size", [0, 5])
def test_a_buffer_says_its_size_address_and_interface(size: int) -> None:
    buffer = rmm.DeviceBuffer(size=size)
    assert (buffer.ptr != 0) == bool(size)
    assert len(buffer) == buffer.size == buffer.nbytes == buffer.__sizeof__() == size <= buffer.capacity()
    assert buffer.__cuda_array_interface__ == {
        "data": (buffer.ptr, False),
        "shape": (size,),
        "strides": None,
        "typestr": "|u1",
        "version": 0,
    }


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("source", [b"abc", bytearray(b"abc"), memoryview(b"abc"), np.array([97, 98, 99], "u1"), b""])
def test_bytes_go_to_the_device_and_back(source: Any) -> None:
    buffer = rmm.DeviceBuffer.to_device(source)
    assert bytes(buffer) == buffer.tobytes() == bytes(source)
    assert isinstance(buffer.copy_to_host(), np.ndarray)
    target = bytearray(len(source))
    assert buffer.copy_to_host(target) is target and target == source


@pytest.mark.parametrize("source", [np.ones(2, "u2"), np.ones((2, 2), "u1"), np.ones(4, "u1")[::2]])
def test_what_is_not_bytes_in_one_row_is_a_value_error(source: Any) -> None:
    with pytest.raises(ValueError, match="one row"):
        rmm.DeviceBuffer.to_device(source)


@pytest.mark.parametrize("source", [None, "abc", 123])
def test_what_has_no_bytes_is_a_type_error(source: Any) -> None:
    with pytest.raises(TypeError):
        rmm.DeviceBuffer.to_device(source)


@pytest.mark.usefixtures("machine")
def test_a_buffer_is_filled_from_the_host_and_from_a_device() -> None:
    buffer = rmm.DeviceBuffer.to_device(bytes(5))
    buffer.copy_from_host(b"ab")
    assert buffer.tobytes() == b"ab\0\0\0"
    buffer.copy_from_device(rmm.DeviceBuffer.to_device(b"xyz"))
    assert buffer.tobytes() == b"xyz\0\0"
    for too_large in (lambda: buffer.copy_from_host(bytes(6)), lambda: buffer.copy_to_host(bytearray(4))):
        with pytest.raises(ValueError, match="too"):
            too_large()
    with pytest.raises(ValueError, match="__cuda_array_interface__"):
        buffer.copy_from_device(b"abc")


@pytest.mark.usefixtures("machine")
def test_a_copy_has_the_same_bytes_elsewhere() -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    for other in (buffer.copy(), copy.copy(buffer), copy.deepcopy(buffer), rmm.DeviceBuffer(ptr=buffer.ptr, size=3)):
        assert other.ptr != buffer.ptr and other.tobytes() == b"abc"


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("source", [b"", b"abc"])
def test_a_buffer_is_pickled_in_band_and_out_of_band(source: bytes) -> None:
    buffer = rmm.DeviceBuffer.to_device(source)
    assert pickle.loads(pickle.dumps(buffer)).tobytes() == source
    apart: list[pickle.PickleBuffer] = []
    text = pickle.dumps(buffer, protocol=5, buffer_callback=apart.append)
    assert [bytes(each) for each in apart] == [source]
    assert pickle.loads(text, buffers=apart).tobytes() == source


@pytest.mark.usefixtures("machine")
def test_resizing_keeps_the_bytes_and_shrinking_keeps_the_room() -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    buffer.reserve(100)
    assert (buffer.size, buffer.capacity() >= 100) == (3, True)
    buffer.resize(2)
    assert (buffer.tobytes(), buffer.capacity() >= 100) == (b"ab", True)
    buffer.resize(200)
    assert buffer.tobytes()[:2] == b"ab" and buffer.size == 200
    with pytest.raises(errors.InvalidSize):
        buffer.resize(-1)
    assert buffer.size == 200


@pytest.mark.usefixtures("machine")
def test_addresses_are_copied_by_the_functions_beside() -> None:
    buffer, other = rmm.DeviceBuffer(size=3), rmm.DeviceBuffer(size=3)
    copy_host_to_ptr(b"abc", buffer.ptr)
    copy_device_to_ptr(buffer.ptr, other.ptr, 3)
    target = bytearray(3)
    copy_ptr_to_host(other.ptr, target)
    assert target == b"abc"
    with pytest.raises(ValueError, match="read"):
        copy_ptr_to_host(other.ptr, b"abc")


def test_no_stream_is_a_type_error_everywhere() -> None:
    buffer = rmm.DeviceBuffer.to_device(b"abc")
    nothing: Any = None
    for call in (
        lambda: rmm.DeviceBuffer(size=10, stream=nothing),
        lambda: rmm.DeviceBuffer.to_device(b"abc", stream=nothing),
        lambda: buffer.copy_to_host(stream=nothing),
        lambda: buffer.copy_from_host(b"abc", stream=nothing),
        lambda: buffer.copy_from_device(buffer, stream=nothing),
        lambda: buffer.tobytes(stream=nothing),
        lambda: buffer.reserve(100, stream=nothing),
        lambda: buffer.resize(100, stream=nothing),
        lambda: copy_ptr_to_host(buffer.ptr, bytearray(3), stream=nothing),
        lambda: copy_host_to_ptr(b"abc", buffer.ptr, stream=nothing),
        lambda: copy_device_to_ptr(buffer.ptr, buffer.ptr, 3, stream=nothing),
        lambda: rmm.mr.get_current_device_resource().allocate(8, stream=nothing),
    ):
        with pytest.raises(TypeError, match="stream argument cannot be None"):
            call()
    assert buffer.tobytes() == b"abc"


def test_dropping_a_buffer_gives_its_memory_back(gpu: SimulatedGpu) -> None:
    before = gpu.memory()
    buffer = rmm.DeviceBuffer(size=1000)
    assert gpu.memory() != before
    del buffer
    assert gpu.memory() == before


def test_a_buffer_on_a_stream_works_in_its_order(gpu: SimulatedGpu) -> None:
    rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    stream = Stream()
    buffer = rmm.DeviceBuffer.to_device(b"abc", stream=stream)
    assert buffer.tobytes(stream) == b"abc"
    rmm.mr.set_current_device_resource(rmm.mr.CudaMemoryResource())
    del stream
    assert buffer.tobytes() == b"abc"


def test_host_memory_is_freed_after_the_stream_of_a_gpu(gpu: SimulatedGpu) -> None:
    stream = Stream()
    buffer = rmm.DeviceBuffer(size=8, stream=stream, mr=rmm.mr.SystemMemoryResource())
    before = gpu.calls("cuStreamSynchronize")
    del buffer
    assert gpu.calls("cuStreamSynchronize") == before + 1


def test_managed_memory_is_prefetched_and_other_memory_is_left_alone(gpu: SimulatedGpu) -> None:
    for mr, moves in ((rmm.mr.ManagedMemoryResource(), 1), (rmm.mr.CudaMemoryResource(), 0)):
        buffer = rmm.DeviceBuffer(size=4096, mr=mr)
        before = gpu.calls("cuMemPrefetchAsync")
        buffer.prefetch()
        assert gpu.calls("cuMemPrefetchAsync") - before == moves


def test_the_tag_and_the_limit_in_force_reach_a_buffer() -> None:
    tracked = rmm.mr.TrackingResourceAdaptor(rmm.mr.SystemMemoryResource())
    rmm.mr.set_current_device_resource(tracked)
    with tm.tag("table"):
        buffer = rmm.DeviceBuffer(size=100)
    assert tracked.resource.totals_by_tag() == {"table": (100, 1)}
    with tm.limit(50), pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=51)
    assert buffer.size == 100
