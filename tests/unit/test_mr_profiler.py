"""The profiler: what a function or a piece of code allocates."""

import threading
from collections.abc import Iterator

import pytest

from tensormem import errors, mr
from tensormem.mr import MemoryRecord, ProfilerRecords


@pytest.fixture
def counted() -> Iterator[mr.StatisticsResourceAdaptor]:
    with mr.use_resource(mr.StatisticsResourceAdaptor(mr.HostMemoryResource())) as resource:
        assert isinstance(resource, mr.StatisticsResourceAdaptor)
        yield resource


def test_a_decorated_function_is_recorded_by_its_name(counted: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()

    @mr.profiler(records=records)
    def load(nbytes: int) -> int:
        """Loads."""
        counted.deallocate(counted.allocate(nbytes))
        return nbytes + 1

    assert (load(100), load(300)) == (101, 301)
    name = load.__qualname__
    assert (load.__name__, load.__doc__) == ("load", "Loads.")
    assert records[name] == MemoryRecord(total_bytes=400, peak_bytes=300, calls=2)


def test_a_context_needs_a_name_and_is_recorded_under_it(counted: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()
    with pytest.raises(errors.InvalidArgument, match="name"), mr.profiler(records=records):
        pass
    with mr.profiler(name="step", records=records):
        keep = counted.allocate(50)
        counted.deallocate(counted.allocate(20))
    assert records["step"] == MemoryRecord(70, 70, 1)
    assert (keep.state, counted.allocation_counts.current_bytes) == ("live", 50)


def test_profilers_nest_and_the_outer_one_sees_all(counted: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()
    with mr.profiler(name="outer", records=records):
        block = counted.allocate(100)
        with mr.profiler(name="inner", records=records):
            counted.deallocate(counted.allocate(1000))
        counted.deallocate(block)
    assert records["inner"] == MemoryRecord(1000, 1000, 1)
    assert records["outer"] == MemoryRecord(1100, 1100, 1)


def test_what_raises_is_recorded_all_the_same(counted: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()

    @mr.profiler(name="failing", records=records)
    def fail() -> None:
        counted.deallocate(counted.allocate(10))
        raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert records["failing"] == MemoryRecord(10, 10, 1)
    with pytest.raises(errors.InvalidArgument):
        counted.pop_counters()  # nothing stayed pushed


def test_a_function_may_call_itself(counted: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()

    @mr.profiler(name="recursive", records=records)
    def recurse(depth: int) -> None:
        block = counted.allocate(10)
        if depth:
            recurse(depth - 1)
        counted.deallocate(block)

    recurse(2)
    assert records["recursive"] == MemoryRecord(total_bytes=10 + 20 + 30, peak_bytes=30, calls=3)


def test_the_uppermost_statistics_of_the_stack_count() -> None:
    records = ProfilerRecords()
    stack = mr.LimitingResourceAdaptor(mr.StatisticsResourceAdaptor(mr.HostMemoryResource()), "1MiB")
    with mr.use_resource(stack), mr.profiler(name="below", records=records):
        stack.deallocate(stack.allocate(100))
    assert records["below"].total_bytes == 100


def test_without_statistics_it_says_what_to_do() -> None:
    with (
        mr.use_resource(mr.HostMemoryResource()),
        pytest.raises(errors.InvalidArgument, match="StatisticsResourceAdaptor"),
        mr.profiler(name="nothing"),
    ):
        pass


def test_records_are_a_table_with_the_highest_peak_first() -> None:
    records = ProfilerRecords()
    records.add("small", mr.Statistics(0, 0, 1024, 1, 4096, 4))
    records.add("large", mr.Statistics(0, 0, 1 << 20, 1, 1 << 20, 1))
    assert [name for name, _ in records.items()] == ["large", "small"]
    header, first, second = str(records).splitlines()
    assert (header.split(), first.split()[-1]) == (["calls", "peak", "total", "name"], "large")
    assert second.split() == ["1", "1", "KiB", "4", "KiB", "small"]
    records.clear()
    assert records.items() == []
    with pytest.raises(KeyError):
        records["small"]


def test_threads_add_to_one_record(counted: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()
    start = threading.Barrier(4)

    def add() -> None:
        start.wait()
        for _ in range(100):
            records.add("shared", mr.Statistics(0, 0, 7, 1, 10, 1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records["shared"] == MemoryRecord(4000, 7, 400)


def test_memory_stats_of_a_resource_are_its_counters_and_of_none_everything() -> None:
    before = mr.memory_stats()
    heap = mr.HostMemoryResource()
    block = heap.allocate(100)
    assert mr.memory_stats(heap) == heap.counters and heap.counters["current_bytes"] == 100
    after = mr.memory_stats()
    for name in ("current_bytes", "reserved_bytes", "charged_bytes", "total_bytes"):
        assert after[name] - before[name] == 100, name
    heap.deallocate(block)
    assert mr.memory_stats()["current_bytes"] == before["current_bytes"]
