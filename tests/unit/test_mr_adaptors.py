"""The smaller adaptors: alignment, prefetching, planned faults, retries, pressure."""

import pytest

from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing import simulated_gpu
from tensormem.testing.resources import Gate

# --- Alignment ---


def test_blocks_from_the_threshold_on_get_the_alignment() -> None:
    aligned = mr.AlignedResourceAdaptor(mr.HostMemoryResource(), 8192, "1KiB")
    large, small = aligned.allocate(1024), aligned.allocate(1023)
    assert (large.ptr % 8192, large.alignment, small.alignment) == (0, 8192, 256)
    assert aligned.allocate(2000, alignment=65536).ptr % 65536 == 0
    assert aligned.bytes_outstanding == 1024 + 1023


@pytest.mark.parametrize("alignment", [0, 3, 2**31, -1, 2**100])
def test_an_alignment_that_is_none_is_refused(alignment: int) -> None:
    with pytest.raises(errors.InvalidAlignment):
        mr.AlignedResourceAdaptor(mr.HostMemoryResource(), alignment)


# --- Prefetching ---


def test_a_prefetched_block_is_the_upstreams_block() -> None:
    prefetching = mr.PrefetchResourceAdaptor(mr.HostMemoryResource(), device=0)
    with Stream(host()) as stream:
        block = prefetching.allocate("1MiB", stream)
        assert (block.nbytes, block.alloc_stream, block.state) == (1 << 20, stream.id, "live")
        prefetching.deallocate(block, stream)


def test_a_device_that_does_not_exist_is_refused_and_the_block_goes_back() -> None:
    lost = mr.PrefetchResourceAdaptor(mr.HostMemoryResource(), device=7)
    with pytest.raises(errors.InvalidArgument):
        lost.allocate(100)
    assert lost.bytes_outstanding == 0


def test_the_memory_of_a_gpu_stays_where_it_is_and_managed_memory_is_moved() -> None:
    with simulated_gpu(devices=1) as gpu:
        for leaf, moves in ((mr.GpuMemoryResource(), 0), (mr.ManagedMemoryResource(), 1)):
            prefetching = mr.PrefetchResourceAdaptor(leaf, device=0)
            before = gpu.calls("cuMemPrefetchAsync")
            prefetching.deallocate(prefetching.allocate(4096))
            assert gpu.calls("cuMemPrefetchAsync") - before == moves


# --- Planned faults ---


def fails(faulty: mr.FaultInjectionResourceAdaptor, sizes: list[int], tag: str | None = None) -> list[bool]:
    outcomes = []
    for nbytes in sizes:
        try:
            faulty.deallocate(faulty.allocate(nbytes, tag=tag))
            outcomes.append(False)
        except errors.OutOfMemory as refusal:
            assert refusal.requested == nbytes
            outcomes.append(True)
    return outcomes


def test_the_nth_and_every_nth_call_fail() -> None:
    heap = mr.HostMemoryResource()
    assert fails(mr.FaultInjectionResourceAdaptor(heap, nth=2), [1] * 4) == [False, True, False, False]
    assert fails(mr.FaultInjectionResourceAdaptor(heap, every=2), [1] * 4) == [False, True, False, True]
    assert fails(mr.FaultInjectionResourceAdaptor(heap), [1] * 2) == [True, True]


def test_calls_fail_by_size_and_tag() -> None:
    heap = mr.HostMemoryResource()
    by_size = mr.FaultInjectionResourceAdaptor(heap, min_bytes=10, max_bytes="1KiB")
    assert fails(by_size, [9, 10, 1024, 1025]) == [False, True, True, False]
    by_tag = mr.FaultInjectionResourceAdaptor(heap, tag="doomed", nth=2)
    assert fails(by_tag, [1, 1], tag="fine") == [False, False]
    assert fails(by_tag, [1, 1, 1], tag="doomed") == [False, True, False]
    assert (by_tag.matching_calls, by_tag.injected_faults) == (3, 1)


def test_a_probability_fails_the_same_calls_every_time() -> None:
    plans = [mr.FaultInjectionResourceAdaptor(mr.HostMemoryResource(), probability=0.3, seed=s) for s in (7, 7, 8)]
    first, again, other = (fails(plan, [1] * 300) for plan in plans)
    assert first == again != other
    assert 50 < sum(first) < 140


def test_bad_plans_are_refused() -> None:
    heap = mr.HostMemoryResource()
    for plan in ({"nth": 0}, {"nth": -1}, {"every": 0}, {"probability": 1.5}, {"probability": -0.1}, {"nth": 1.5}):
        with pytest.raises(errors.InvalidArgument):
            mr.FaultInjectionResourceAdaptor(heap, **plan)
    with pytest.raises(errors.InvalidSize):
        mr.FaultInjectionResourceAdaptor(heap, min_bytes="12 potatoes")


# --- Retries ---


def test_a_callback_is_asked_as_long_as_it_says_again() -> None:
    asked: list[int] = []

    def again(nbytes: int) -> bool:
        asked.append(nbytes)
        return len(asked) < 3

    faults = mr.FaultInjectionResourceAdaptor(mr.HostMemoryResource())
    with pytest.raises(errors.OutOfMemory):
        mr.FailureCallbackResourceAdaptor(faults, again).allocate(100)
    assert (asked, faults.injected_faults) == ([100] * 3, 3)


def test_a_callback_that_makes_room_is_rewarded() -> None:
    budget = mr.LimitingResourceAdaptor(mr.HostMemoryResource(), 1000)
    cache = [budget.allocate(300) for _ in range(3)]
    retrying = mr.FailureCallbackResourceAdaptor(budget, lambda nbytes: bool(cache) and cache.pop() is not None)
    block = retrying.allocate(600)
    assert (len(cache), block.state) == (1, "live")


def test_only_shortage_is_asked_about() -> None:
    asked: list[int] = []
    retrying = mr.FailureCallbackResourceAdaptor(mr.HostMemoryResource(), asked.append)
    stream = Stream(host())
    stream.close()
    with pytest.raises(errors.InvalidSize):
        retrying.allocate(0)
    with pytest.raises(errors.InvalidAlignment):
        retrying.allocate(1, alignment=3)
    with pytest.raises(errors.StreamMisuse):
        retrying.allocate(1, stream)
    assert asked == []


def test_a_callback_may_allocate_through_its_own_adaptor() -> None:
    def again(nbytes: int) -> bool:
        if nbytes == 100:
            retrying.deallocate(retrying.allocate(7))
        return nbytes == 100 and faults.injected_faults < 2

    faults = mr.FaultInjectionResourceAdaptor(mr.HostMemoryResource(), min_bytes=50, nth=1)
    retrying = mr.FailureCallbackResourceAdaptor(faults, again)
    assert retrying.allocate(100).state == "live"


# --- Pressure ---


def pressed(hysteresis: int = 0) -> tuple[mr.PressureResourceAdaptor, list[tuple[str, int]]]:
    heard: list[tuple[str, int]] = []
    watched = mr.PressureResourceAdaptor(
        mr.HostMemoryResource(), lambda *told: heard.append(told), warn=1000, critical=2000, hysteresis=hysteresis
    )
    return watched, heard


def test_every_change_of_level_is_told_once() -> None:
    watched, heard = pressed()
    quiet = watched.allocate(999)
    assert (watched.level, heard) == ("normal", [])
    first = watched.allocate(1)
    second = watched.allocate(1000)
    assert (watched.level, heard) == ("critical", [("warn", 1000), ("critical", 2000)])
    watched.deallocate(second)
    watched.deallocate(first)
    assert (watched.level, heard[2:]) == ("normal", [("warn", 1000), ("normal", 999)])
    assert quiet.state == "live"


def test_a_level_holds_within_the_hysteresis() -> None:
    watched, heard = pressed(hysteresis=200)
    blocks = [watched.allocate(100) for _ in range(10)]
    for _ in range(2):
        watched.deallocate(blocks.pop())
    assert watched.level == "warn"
    watched.deallocate(blocks.pop())
    assert (watched.level, [level for level, _ in heard]) == ("normal", ["warn", "normal"])


def test_at_critical_the_callback_is_asked_before_each_allocation_and_may_reclaim() -> None:
    cache: list[mr.DeviceBlock] = []

    def reclaim(level: str, used: int) -> None:
        if level == "critical" and cache:
            watched.deallocate(cache.pop())

    watched = mr.PressureResourceAdaptor(mr.HostMemoryResource(), reclaim, warn=1000, critical=2000)
    cache.extend(watched.allocate(900) for _ in range(2))
    keep = watched.allocate(500)
    assert (len(cache), watched.level, keep.state) == (1, "warn", "live")
    assert watched.bytes_outstanding == 1400


def test_what_waits_for_a_stream_still_presses() -> None:
    watched, _ = pressed()
    gate = Gate()
    with Stream(host()) as stream:
        gate.hold(stream)
        watched.deallocate(watched.allocate(1500, stream), stream)
        assert (watched.level, watched.bytes_outstanding) == ("warn", 1500)
        gate.open()
        stream.synchronize()
        watched.reap_pending()
        assert (watched.level, watched.bytes_outstanding) == ("normal", 0)


@pytest.mark.parametrize(
    "marks", [(0, 10, 0), (10, 5, 0), (10, 20, 10), ("12 potatoes", 20, 0)], ids=lambda marks: str(marks)
)
def test_marks_that_make_no_sense_are_refused(marks: tuple[int, int, int]) -> None:
    warn, critical, hysteresis = marks
    with pytest.raises(errors.InvalidArgument):
        mr.PressureResourceAdaptor(
            mr.HostMemoryResource(), lambda *told: None, warn=warn, critical=critical, hysteresis=hysteresis
        )


@pytest.mark.parametrize("nonsense", [None, 7, "callback"])
def test_a_callback_is_something_to_call(nonsense: object) -> None:
    heap = mr.HostMemoryResource()
    for make in (
        lambda: mr.FailureCallbackResourceAdaptor(heap, nonsense),  # type: ignore[arg-type]
        lambda: mr.PressureResourceAdaptor(heap, nonsense, warn=1, critical=2),  # type: ignore[arg-type]
        lambda: mr.CallbackMemoryResource(nonsense, print),  # type: ignore[arg-type]
        lambda: mr.CallbackMemoryResource(print, nonsense),  # type: ignore[arg-type]
    ):
        with pytest.raises(errors.InvalidArgument, match="something to call"):
            make()
