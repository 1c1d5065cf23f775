"""The resources of `rmm.mr` keep RMM's manners: plain addresses, upstreams, limits, callbacks."""

import gc
from collections.abc import Callable
from typing import Any

import pytest

import tensormem as tm
from tensormem import errors, rmm
from tensormem.rmm.pylibrmm.stream import DEFAULT_STREAM, Stream
from tensormem.testing.gpus import SimulatedGpu

_ON_THE_HOST: list[Callable[[], rmm.mr.DeviceMemoryResource]] = [
    rmm.mr.SystemMemoryResource,
    rmm.mr.PinnedHostMemoryResource,
    lambda: rmm.mr.PoolMemoryResource(rmm.mr.SystemMemoryResource(), "1MiB", "8MiB"),
    lambda: rmm.mr.ArenaMemoryResource(rmm.mr.SystemMemoryResource(), "1MiB"),
    lambda: rmm.mr.FixedSizeMemoryResource(rmm.mr.SystemMemoryResource(), 4096, 4),
    lambda: rmm.mr.BinningMemoryResource(rmm.mr.SystemMemoryResource(), 10, 12),
    lambda: rmm.mr.LimitingResourceAdaptor(rmm.mr.SystemMemoryResource(), 1 << 20),
    lambda: rmm.mr.StatisticsResourceAdaptor(rmm.mr.SystemMemoryResource()),
    lambda: rmm.mr.TrackingResourceAdaptor(rmm.mr.SystemMemoryResource(), capture_stacks=True),
    lambda: rmm.mr.FailureCallbackResourceAdaptor(rmm.mr.SystemMemoryResource(), lambda nbytes: False),
    lambda: rmm.mr.PrefetchResourceAdaptor(rmm.mr.SystemMemoryResource()),
    lambda: rmm.mr.StatisticsResourceAdaptor(tm.mr.HostMemoryResource()),
    lambda: rmm.mr.DeviceMemoryResource(tm.mr.HostMemoryResource()),
]
_ON_A_GPU: list[Callable[[], rmm.mr.DeviceMemoryResource]] = [
    rmm.mr.CudaMemoryResource,
    rmm.mr.CudaAsyncMemoryResource,
    lambda: rmm.mr.CudaAsyncMemoryResource("1MiB", release_threshold=0),
    rmm.mr.ManagedMemoryResource,
    rmm.mr.PinnedHostMemoryResource,
    rmm.mr.SystemMemoryResource,
    lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), "1MiB", "8MiB"),
    lambda: rmm.mr.PrefetchResourceAdaptor(rmm.mr.CudaMemoryResource()),
]


def exercise(mr: rmm.mr.DeviceMemoryResource) -> None:
    first, second = mr.allocate(1000), mr.allocate(1000, DEFAULT_STREAM)
    assert first != second and first % 256 == second % 256 == 0
    mr.deallocate(first, 1000)
    mr.deallocate(second, 1000, DEFAULT_STREAM)
    assert mr.allocate(0) == 0
    mr.deallocate(0, 0)
    mr.resource.reap_pending()
    assert mr.resource.bytes_outstanding == 0


@pytest.mark.parametrize("make", _ON_THE_HOST)
def test_memory_of_the_host_is_handed_out_as_addresses(make: Callable[[], rmm.mr.DeviceMemoryResource]) -> None:
    exercise(make())


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("make", _ON_A_GPU)
def test_memory_of_a_gpu_is_handed_out_as_addresses(make: Callable[[], rmm.mr.DeviceMemoryResource]) -> None:
    mr = make()
    exercise(mr)
    stream = Stream()
    mr.deallocate(mr.allocate(1000, stream), 1000, stream)


def test_what_says_cuda_refuses_without_a_gpu() -> None:
    makers: list[Callable[[], object]] = [rmm.mr.CudaMemoryResource, rmm.mr.CudaAsyncMemoryResource]
    for make in [*makers, rmm.mr.ManagedMemoryResource]:
        with pytest.raises(errors.DriverUnavailable):
            make()


def test_a_wrong_deallocate_is_refused_and_changes_nothing() -> None:
    mr, other = rmm.mr.SystemMemoryResource(), rmm.mr.SystemMemoryResource()
    address = mr.allocate(1000)
    with pytest.raises(errors.InvalidSize, match="1000 bytes"):
        mr.deallocate(address, 999)
    with pytest.raises(errors.ForeignBlock):
        other.deallocate(address, 1000)
    with pytest.raises(errors.ForeignBlock):
        mr.deallocate(address + 256, 1000)
    mr.deallocate(address, 1000)
    with pytest.raises(errors.ForeignBlock):
        mr.deallocate(address, 1000)


def test_an_address_outlives_the_object_that_made_it() -> None:
    mr = rmm.mr.SystemMemoryResource()
    native, address = mr.resource, mr.allocate(1000)
    del mr
    gc.collect()
    assert native.bytes_outstanding == 1000
    rmm.mr.DeviceMemoryResource(native).deallocate(address, 1000)
    assert native.bytes_outstanding == 0


def test_an_adaptor_knows_its_upstream_and_needs_one() -> None:
    upstream = rmm.mr.SystemMemoryResource()
    adaptor = rmm.mr.StatisticsResourceAdaptor(upstream)
    assert adaptor.upstream_mr is adaptor.get_upstream() is upstream
    assert isinstance(adaptor, rmm.mr.UpstreamResourceAdaptor)
    assert not isinstance(upstream, rmm.mr.UpstreamResourceAdaptor)
    nothing: Any = None
    with pytest.raises(errors.InvalidArgument, match="upstream_mr"):
        rmm.mr.StatisticsResourceAdaptor(nothing)


def test_a_limit_is_kept_and_told() -> None:
    limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.SystemMemoryResource(), allocation_limit=1 << 20)
    rmm.mr.set_current_device_resource(limited)
    buffers = [rmm.DeviceBuffer(size=1 << 19) for _ in range(2)]
    assert limited.get_allocated_bytes() == sum(map(len, buffers)) == limited.get_allocation_limit()
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=1)


def test_callbacks_get_size_and_stream_and_are_called_in_pairs() -> None:
    seen: list[tuple[Any, ...]] = []
    base = rmm.mr.SystemMemoryResource()

    def take(size: int, stream: Stream) -> int:
        seen.append(("take", size, stream))
        return base.allocate(size, stream)

    def give_back(ptr: int, size: int, stream: Stream) -> None:
        seen.append(("give back", size, stream))
        base.deallocate(ptr, size, stream)

    mr = rmm.mr.CallbackMemoryResource(take, give_back)
    rmm.DeviceBuffer(size=256, mr=mr)
    stream = Stream()
    mr.deallocate(mr.allocate(8, stream), 8, stream)
    first = [("take", 256, DEFAULT_STREAM), ("give back", 256, DEFAULT_STREAM)]
    assert seen == [*first, ("take", 8, stream), ("give back", 8, stream)]


def test_a_callback_over_a_gpu_hears_of_its_stream(gpu: SimulatedGpu) -> None:
    base = rmm.mr.CudaMemoryResource()
    seen: list[Stream] = []

    def take(nbytes: int, stream: Stream) -> int:
        seen.append(stream)
        return base.allocate(nbytes, stream)

    mr = rmm.mr.CallbackMemoryResource(take, base.deallocate)
    stream = Stream()
    buffer = rmm.DeviceBuffer(size=256, stream=stream, mr=mr)
    assert seen == [stream] and buffer.ptr
    del buffer
    assert base.resource.bytes_outstanding == 0


@pytest.mark.parametrize(
    ("raised", "caught"),
    [
        (MemoryError, MemoryError),
        (RuntimeError, RuntimeError),
        (Exception, RuntimeError),
        (BaseException, RuntimeError),
    ],
)
def test_what_a_callback_raises_is_told(raised: type[BaseException], caught: type[Exception]) -> None:
    def take(size: int, stream: Stream) -> int:
        raise raised("no luck today")

    rmm.mr.set_current_device_resource(rmm.mr.CallbackMemoryResource(take, lambda *args: None))
    with pytest.raises(caught, match="no luck today"):
        rmm.DeviceBuffer(size=256)


def test_a_failure_callback_is_asked_until_it_says_no() -> None:
    answers = [True, False]
    limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.SystemMemoryResource(), 10)
    with pytest.raises(MemoryError):
        rmm.mr.FailureCallbackResourceAdaptor(limited, lambda nbytes: answers.pop(0)).allocate(256)
    assert answers == []


def test_a_bin_is_replaced_until_blocks_are_out() -> None:
    upstream = rmm.mr.SystemMemoryResource()
    binning = rmm.mr.BinningMemoryResource(upstream, 10, 12)
    own = rmm.mr.StatisticsResourceAdaptor(upstream)
    binning.add_bin(1 << 10, own)
    address = binning.allocate(1000)
    assert own.allocation_counts.current_count == 1 and binning.bin_mrs == [own]
    with pytest.raises(errors.InvalidArgument, match="blocks are out"):
        binning.add_bin(1 << 10, rmm.mr.StatisticsResourceAdaptor(upstream))
    binning.deallocate(address, 1000)


def test_tracking_tells_what_is_out() -> None:
    tracked = rmm.mr.TrackingResourceAdaptor(rmm.mr.SystemMemoryResource(), capture_stacks=True)
    buffers = [rmm.DeviceBuffer(size=1000, mr=tracked) for _ in range(3)]
    assert tracked.get_allocated_bytes() == 3000 and tracked.get_outstanding_allocations_str()
    del buffers
    assert tracked.get_allocated_bytes() == 0 and tracked.get_outstanding_allocations_str() == ""


def test_a_pool_that_begins_above_its_end_is_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="Initial pool size exceeds the maximum pool size"):
        rmm.mr.PoolMemoryResource(rmm.mr.SystemMemoryResource(), 2048, 1024)
    pool = rmm.mr.PoolMemoryResource(rmm.mr.SystemMemoryResource(), "2kib", "8MIB")
    assert pool.pool_size() >= 2048


def test_handles_for_other_processes_are_refused(gpu: SimulatedGpu) -> None:
    for option in ("enable_ipc", "enable_fabric"):
        with pytest.raises(RuntimeError, match="Requested IPC memory handle type not supported"):
            rmm.mr.CudaAsyncMemoryResource(**{option: True})
