"""Streams of other libraries: found by handle, kept by the blocks that need them, forgotten when they end; a block that
outlives its stream is given back all the same."""

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from support.bare_gpu import BareGpu
from tensormem import errors, mr
from tensormem._core import Driver
from tensormem.streams import Stream
from tensormem.testing import SimulatedGpu, simulated_gpu

MAKERS: dict[str, Callable[[Driver], mr.DeviceMemoryResource]] = {
    "plain": mr.GpuMemoryResource,
    "stream-ordered": mr.GpuAsyncMemoryResource,
    "pool": lambda driver: mr.PoolMemoryResource(mr.GpuMemoryResource(driver)),
}


class Theirs:
    """A stream that another library makes and destroys."""

    def __init__(self, bare: BareGpu) -> None:
        self._bare = bare
        self.handle = bare.stream()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self.handle.value or 0)

    def destroy(self) -> None:
        self._bare.ask("StreamDestroy", self.handle)


@pytest.fixture(params=["cuda", "rocm"])
def gpu(request: pytest.FixtureRequest) -> Iterator[SimulatedGpu]:
    with simulated_gpu(memory="64MiB", vendor=request.param) as gpu:
        yield gpu


@pytest.mark.parametrize("maker", MAKERS)
def test_a_block_keeps_its_stream_and_lets_it_go_when_it_is_given_back(gpu: SimulatedGpu, maker: str) -> None:
    resource = MAKERS[maker](gpu.drivers[0])
    theirs = Theirs(BareGpu(gpu))
    alive = weakref.ref(theirs)
    block = resource.allocate(4096, theirs)
    del theirs
    gc.collect()
    assert alive() is not None
    resource.deallocate(block)
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("dropped", [False, True])
def test_a_block_that_outlives_its_stream_is_given_back(gpu: SimulatedGpu, maker: str, dropped: bool) -> None:
    resource = MAKERS[maker](gpu.drivers[0])
    theirs = Theirs(BareGpu(gpu))
    block = resource.allocate(4096, theirs)
    theirs.destroy()
    if dropped:
        del block
        gc.collect()
    else:
        resource.deallocate(block)
    resource.reap_pending()
    assert resource.bytes_outstanding == 0
    again = resource.allocate(4096)  # what it had is not lost
    resource.deallocate(again)


def test_a_stream_that_was_destroyed_is_refused_by_name_and_forgotten(gpu: SimulatedGpu) -> None:
    theirs = Theirs(BareGpu(gpu))
    resource = mr.GpuAsyncMemoryResource(gpu.drivers[0])
    resource.deallocate(resource.allocate(4096, theirs))
    held = gpu.platform.held["streams"]
    theirs.destroy()
    with pytest.raises(errors.StreamMisuse):
        resource.allocate(4096, theirs)
    assert gpu.platform.held["streams"] == held - 1


def test_a_stream_of_ours_that_comes_back_by_its_handle_is_the_same(gpu: SimulatedGpu) -> None:
    class Ours:
        def __init__(self, stream: Stream) -> None:
            self._stream = stream

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, self._stream.handle

    with Stream(gpu.drivers[0]) as stream:
        block = mr.GpuAsyncMemoryResource(gpu.drivers[0]).allocate(64, Ours(stream))
        assert block.alloc_stream == stream.id
        del block


def test_many_streams_of_others_are_found_again(gpu: SimulatedGpu) -> None:
    bare = BareGpu(gpu)
    resource = mr.GpuAsyncMemoryResource(gpu.drivers[0])
    theirs = [Theirs(bare) for _ in range(50)]
    first = [resource.allocate(64, each) for each in theirs]
    second = [resource.allocate(64, each) for each in theirs]
    assert [block.alloc_stream for block in first] == [block.alloc_stream for block in second]
    assert len({block.alloc_stream for block in first}) == 50
