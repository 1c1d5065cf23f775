"""Statistics and the profiler by RMM's names."""

import pytest

from tensormem import rmm
from tensormem.mr import Statistics
from tensormem.rmm.statistics import (
    ProfilerRecords,
    _get_descriptive_name_of_object,
    get_statistics,
    pop_statistics,
    profiler,
    push_statistics,
    statistics,
)


def test_contexts_count_apart_and_together() -> None:
    before = rmm.mr.get_current_device_resource()
    assert get_statistics() is None and push_statistics() is None and pop_statistics() is None
    with statistics():
        outer = rmm.mr.get_current_device_resource()
        first = rmm.DeviceBuffer(size=20)
        with statistics():
            assert rmm.mr.get_current_device_resource() is outer
            second = rmm.DeviceBuffer(size=10)
            assert get_statistics() == Statistics(10, 1, 10, 1, 10, 1)
        assert get_statistics() == Statistics(30, 2, 30, 2, 30, 2)
        del first, second
    assert rmm.mr.get_current_device_resource() is before


def test_a_changed_stack_is_told() -> None:
    with pytest.raises(ValueError, match="was changed"), statistics():
        rmm.mr.set_current_device_resource(rmm.mr.SystemMemoryResource())


def test_counters_are_a_stack_whose_last_stays() -> None:
    counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.SystemMemoryResource())
    buffer = rmm.DeviceBuffer(size=10, mr=counted)
    assert counted.push_counters() == Statistics(10, 1, 10, 1, 10, 1)
    del buffer
    assert counted.pop_counters() == Statistics(-10, -1, 0, 0, 0, 0)
    with pytest.raises(IndexError, match="cannot pop the last counter pair"):
        counted.pop_counters()
    assert counted.allocation_counts == Statistics(0, 0, 10, 1, 10, 1)


def test_functions_and_blocks_are_profiled_where_something_counts() -> None:
    records = ProfilerRecords()
    assert "No data" in records.report()

    @profiler(records=records)
    def load() -> rmm.DeviceBuffer:
        temporary = rmm.DeviceBuffer(size=10)
        del temporary
        return rmm.DeviceBuffer(size=20)

    load()
    assert records.records == {}
    with statistics():
        load()
        load()
        with profiler(records=records, name="block"):
            rmm.DeviceBuffer(size=5)
    name = _get_descriptive_name_of_object(load)
    assert name.endswith("load)") and "test_statistics.py" in name
    assert records.records == {
        name: ProfilerRecords.MemoryRecord(num_calls=2, memory_total=60, memory_peak=20),
        "block": ProfilerRecords.MemoryRecord(num_calls=1, memory_total=5, memory_peak=5),
    }
    assert str(records).splitlines()[-1].endswith("block")
    with pytest.raises(ValueError, match="name must be provided"), profiler(records=records):
        pass
