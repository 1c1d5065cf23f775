"""StatisticsResourceAdaptor: counters of what passes, with scopes."""

import pytest

from tensormem import errors, mr
from tensormem.mr import Statistics


def counting() -> mr.StatisticsResourceAdaptor:
    return mr.StatisticsResourceAdaptor(mr.HostMemoryResource())


def test_what_passes_is_counted() -> None:
    counted = counting()
    first, second = counted.allocate(100), counted.allocate(50)
    assert counted.allocation_counts == Statistics(150, 2, 150, 2, 150, 2)
    counted.deallocate(first)
    third = counted.allocate(20)
    assert counted.allocation_counts == Statistics(70, 2, 150, 2, 170, 3)
    counted.deallocate(second)
    counted.deallocate(third)
    assert counted.allocation_counts == Statistics(0, 0, 150, 2, 170, 3)


def test_what_is_refused_is_not_counted() -> None:
    counted = counting()
    with pytest.raises(errors.InvalidSize):
        counted.allocate(0)
    block = counted.allocate(10)
    counted.deallocate(block)
    with pytest.raises(errors.UseAfterFree):
        counted.deallocate(block)
    assert counted.allocation_counts == Statistics(0, 0, 10, 1, 10, 1)


def test_a_scope_counts_afresh_and_adds_to_the_one_around_it() -> None:
    counted = counting()
    outer = counted.allocate(100)
    assert counted.push_counters() == Statistics(100, 1, 100, 1, 100, 1)
    assert counted.allocation_counts == Statistics(0, 0, 0, 0, 0, 0)
    inner = counted.allocate(30)
    counted.deallocate(counted.allocate(20))
    assert counted.pop_counters() == Statistics(30, 1, 50, 2, 50, 2)
    assert counted.allocation_counts == Statistics(130, 2, 150, 3, 150, 3)
    assert {outer.state, inner.state} == {"live"}


def test_a_scope_that_frees_what_came_before_goes_below_zero() -> None:
    counted = counting()
    block = counted.allocate(100)
    counted.push_counters()
    counted.deallocate(block)
    assert counted.pop_counters() == Statistics(-100, -1, 0, 0, 0, 0)
    assert counted.allocation_counts == Statistics(0, 0, 100, 1, 100, 1)


def test_scopes_nest() -> None:
    counted = counting()
    counted.push_counters()
    counted.deallocate(counted.allocate(10))
    counted.push_counters()
    counted.deallocate(counted.allocate(1000))
    assert counted.pop_counters().peak_bytes == 1000
    assert counted.pop_counters() == Statistics(0, 0, 1000, 1, 1010, 2)
    assert counted.allocation_counts == Statistics(0, 0, 1000, 1, 1010, 2)


def test_the_outermost_scope_stays() -> None:
    counted = counting()
    counted.deallocate(counted.allocate(10))
    with pytest.raises(errors.InvalidArgument, match="pop without push"):
        counted.pop_counters()
    assert counted.allocation_counts == Statistics(0, 0, 10, 1, 10, 1)


def test_a_dropped_block_is_counted_as_freed() -> None:
    counted = counting()
    block = counted.allocate(10)
    del block
    assert counted.allocation_counts.current_count == 0
