"""Memory while a stream is captured into a graph: legal, or refused by name before the capture is hurt."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.bare_gpu import BareGpu
from tensormem import errors, mr
from tensormem.streams import Stream
from tensormem.testing import SimulatedGpu, simulated_gpu

GLOBAL = 0


@pytest.fixture(params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory="64MiB", vendor=request.param) as gpu:
        yield gpu


@contextmanager
def captured(gpu: SimulatedGpu, stream: Stream) -> Iterator[None]:
    """A capture of the strictest kind, which has to be valid at its end."""
    bare, handle, graph = BareGpu(gpu), ctypes.c_void_p(stream.handle), ctypes.c_void_p()
    bare.ask("StreamBeginCapture", handle, ctypes.c_int(GLOBAL))
    yield
    bare.ask("StreamEndCapture", handle, ctypes.byref(graph))


def test_plain_memory_is_allocated_and_freed_beside_a_capture(gpu: SimulatedGpu) -> None:
    resources = [make(gpu.drivers[0]) for make in (mr.GpuMemoryResource, mr.PinnedMemoryResource)]
    with Stream(gpu.drivers[0]) as stream, Stream(gpu.drivers[0]) as other, captured(gpu, stream):
        for resource in resources:
            resource.deallocate(resource.allocate(4096, other), other)
        assert other.done
        other.synchronize()


def test_a_free_on_the_captured_stream_is_refused_and_the_block_stays(gpu: SimulatedGpu) -> None:
    plain = mr.GpuMemoryResource(gpu.drivers[0])
    with Stream(gpu.drivers[0]) as stream:
        with captured(gpu, stream):
            block = plain.allocate(4096, stream)
            with pytest.raises(errors.StreamMisuse, match="captured into a graph"):
                plain.deallocate(block)
            assert block.state == "live" and not stream.done
        plain.deallocate(block)


def test_stream_ordered_memory_is_refused_on_the_captured_stream(gpu: SimulatedGpu) -> None:
    resource = mr.GpuAsyncMemoryResource(gpu.drivers[0])
    with Stream(gpu.drivers[0]) as stream:
        block = resource.allocate(4096, stream)
        with captured(gpu, stream):
            with pytest.raises(errors.StreamMisuse, match="captured into a graph"):
                resource.allocate(4096, stream)
            with pytest.raises(errors.StreamMisuse, match="captured into a graph"):
                resource.deallocate(block)
            with pytest.raises(errors.StreamMisuse, match="captured into a graph"):
                stream.synchronize()
        resource.deallocate(block)
        assert resource.bytes_outstanding == 0


def test_a_pool_grows_and_takes_back_during_a_capture_without_asking_the_stream(gpu: SimulatedGpu) -> None:
    pool = mr.PoolMemoryResource(mr.GpuMemoryResource(gpu.drivers[0]), maximum_pool_size="8MiB")
    with Stream(gpu.drivers[0]) as stream:
        with captured(gpu, stream):
            blocks = [pool.allocate("2MiB", stream) for _ in range(3)]
            for block in blocks:
                pool.deallocate(block, stream)
            again = pool.allocate("2MiB", stream)
            pool.reap_pending()
        pool.deallocate(again, stream)
        stream.synchronize()
        pool.reap_pending()
        assert pool.bytes_outstanding == 0


@pytest.mark.parametrize("code", range(900, 909))
def test_failures_of_captures_have_names_and_plain_words(gpu: SimulatedGpu, code: int) -> None:
    gpu.fail("cuMemGetInfo" if gpu.vendor == "cuda" else "hipMemGetInfo", result=code)
    with pytest.raises(errors.DriverError, match=r"(?i)captur") as caught:
        gpu.drivers[0].memory_info()
    assert caught.value.code == code and "unknown" not in str(caught.value)
