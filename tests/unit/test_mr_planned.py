"""PlannedMemoryResource and AbstractMemoryResource: a plan is followed, and reality wins where it differs."""

import threading

import pytest

from tensormem import errors, mr
from tensormem.streams import Stream
from tensormem.trace import Lifetime, plan

KIB = 1024


def three_blocks() -> mr.PlannedMemoryResource:
    """`a` and `b` live at once, and `c` has the place of `a`."""
    lifetimes = [Lifetime("a", 0, 2, 4 * KIB), Lifetime("b", 1, 3, 2 * KIB), Lifetime("c", 2, 4, 4 * KIB)]
    return mr.PlannedMemoryResource(plan(lifetimes, alignment=256), mr.HostMemoryResource())


def taken(planned: mr.PlannedMemoryResource) -> int:
    """What it has of its upstream."""
    assert planned.upstream_mr is not None
    return planned.upstream_mr.bytes_outstanding


def test_a_plan_is_followed_step_after_step() -> None:
    planned = three_blocks()
    assert planned.arena_size == 6 * KIB and taken(planned) == 6 * KIB
    places = []
    for _ in range(3):
        planned.new_step()
        a, b = planned.allocate(4 * KIB), planned.allocate(2 * KIB)
        planned.deallocate(a)
        c = planned.allocate(4 * KIB)
        places.append((a.ptr, b.ptr, c.ptr))
        planned.deallocate(b)
        planned.deallocate(c)
    assert len(set(places)) == 1 and places[0][0] == places[0][2]
    assert (planned.planned, planned.fallbacks, planned.position) == (9, 0, 3)
    assert planned.bytes_outstanding == 0


def test_blocks_beyond_the_plan_and_of_other_sizes_come_from_the_upstream() -> None:
    planned = three_blocks()
    other = planned.allocate(999)
    a = planned.allocate(4 * KIB)
    assert (planned.planned, planned.fallbacks) == (1, 1)
    assert taken(planned) == 6 * KIB + 999
    del other, a
    assert taken(planned) == 6 * KIB


def test_a_block_that_was_left_out_does_not_upset_the_rest() -> None:
    planned = three_blocks()
    a = planned.allocate(4 * KIB)
    planned.deallocate(a)
    c = planned.allocate(4 * KIB)  # b never came
    assert (planned.planned, planned.fallbacks, c.ptr) == (2, 0, a.ptr)


def test_a_place_that_a_stream_still_uses_is_not_handed_out() -> None:
    planned = three_blocks()
    with Stream(planned.driver) as stream:
        gate = threading.Event()
        a = planned.allocate(4 * KIB, stream)
        stream.launch(gate.wait)
        planned.deallocate(a, stream)
        b, c = planned.allocate(2 * KIB), planned.allocate(4 * KIB)
        assert c.ptr != a.ptr and planned.fallbacks == 1
        gate.set()
        stream.synchronize()
        planned.deallocate(b)
        planned.deallocate(c)
    planned.reap_pending()
    assert planned.bytes_outstanding == 0


def test_more_alignment_than_the_plan_has_is_served_by_the_upstream() -> None:
    planned = three_blocks()
    a = planned.allocate(4 * KIB)
    block = planned.allocate(2 * KIB, alignment=1 << 20)
    assert block.ptr % (1 << 20) == 0 and a.ptr != block.ptr


def test_what_is_no_plan_is_refused_and_a_plan_needs_its_memory() -> None:
    with pytest.raises(errors.InvalidArgument):
        mr.PlannedMemoryResource({"offsets": []}, mr.HostMemoryResource())
    small = mr.AbstractMemoryResource("1KiB")
    with pytest.raises(errors.OutOfMemory):
        mr.PlannedMemoryResource(plan([Lifetime("a", 0, 1, 2 * KIB)]), small)
    assert small.bytes_outstanding == 0


def test_a_planned_resource_says_what_it_is() -> None:
    assert three_blocks().describe() == "PlannedMemoryResource: 6 KiB planned, 0 blocks as planned, 0 not"


def test_abstract_memory_has_a_capacity_and_cannot_be_touched() -> None:
    leaf = mr.AbstractMemoryResource("1TiB")
    block = leaf.allocate("1TiB")
    assert (leaf.capacity, leaf.peak_bytes, leaf.is_host_accessible) == (1 << 40, 1 << 40, False)
    with pytest.raises(errors.OutOfMemory) as caught:
        leaf.allocate(1)
    assert caught.value.total_free == 0
    with pytest.raises(errors.InvalidArgument):
        memoryview(block)
    assert mr.AbstractMemoryResource().capacity is None
