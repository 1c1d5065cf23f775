"""PoolMemoryResource: growing, shrinking, what it reports, and memory that is free for one stream only."""

import ctypes
import gc
import threading
from collections.abc import Iterator

import pytest

from support.closing import Closing
from support.workloads import training_step
from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream, StreamLike
from tensormem.testing.resource_upstreams import Moody
from tensormem.testing.resources import Gate

KIB, MIB = 1 << 10, 1 << 20


def pool(
    *sizes: int | str, release_threshold: int | str | None = None, pending_timeout: float = 10.0
) -> mr.PoolMemoryResource:
    return mr.PoolMemoryResource(
        mr.HostMemoryResource(), *sizes, release_threshold=release_threshold, pending_timeout=pending_timeout
    )


@pytest.fixture
def closing() -> Iterator[Closing]:
    stream = Closing()
    yield stream
    stream.finish()


# --- What it holds ---


def test_a_pool_starts_with_its_initial_size_and_grows_when_it_must() -> None:
    upstream = mr.StatisticsResourceAdaptor(mr.HostMemoryResource())
    grown = mr.PoolMemoryResource(upstream, "64KiB")
    assert (grown.pool_size, grown.total_free, grown.largest_free, grown.fragmentation) == (65536, 65536, 65536, 0.0)
    inside = grown.allocate(60 * KIB)
    assert upstream.allocation_counts.total_count == 1
    outside = grown.allocate(60 * KIB)
    assert upstream.allocation_counts.total_count == 2
    assert grown.pool_size == upstream.bytes_outstanding >= 2 * 60 * KIB
    assert {inside.state, outside.state} == {"live"}


def test_a_large_block_gets_a_chunk_of_its_size_and_a_small_one_a_slab() -> None:
    exact = pool()
    large = exact.allocate(10 * MIB)
    assert exact.pool_size == 10 * MIB
    small = exact.allocate(1000)
    assert exact.pool_size <= 10.5 * MIB
    assert (large.state, small.state) == ("live", "live")


def test_empty_chunks_go_back_before_a_pool_takes_more_than_it_ever_had() -> None:
    upstream = mr.StatisticsResourceAdaptor(mr.HostMemoryResource())
    frugal = mr.PoolMemoryResource(upstream)
    for size in (10, 7, 12, 3, 20):
        frugal.deallocate(frugal.allocate(size * MIB))
    assert upstream.allocation_counts.peak_bytes == 20 * MIB


def test_a_small_block_does_not_keep_a_large_chunk() -> None:
    apart = pool()
    large = apart.allocate(64 * MIB)
    small = apart.allocate(1000)
    apart.deallocate(large)
    assert apart.trim() == 64 * MIB
    assert (small.state, apart.pool_size <= MIB) == ("live", True)


def test_the_initial_memory_serves_large_and_small_blocks_to_the_last_byte() -> None:
    upstream = mr.StatisticsResourceAdaptor(mr.HostMemoryResource())
    mixed = mr.PoolMemoryResource(upstream, "8MiB", "8MiB")
    held = [mixed.allocate(3 * MIB), mixed.allocate(200 * KIB), mixed.allocate(4 * MIB)]
    while mixed.total_free >= 1024:
        held.append(mixed.allocate(1024))
    assert sum(block.nbytes for block in held) == 8 * MIB
    for block in held:
        mixed.deallocate(block)
    assert (mixed.largest_free, upstream.allocation_counts.total_count) == (8 * MIB, 1)


def test_what_is_too_large_for_any_empty_chunk_takes_their_place_within_the_maximum() -> None:
    tight = pool(0, "10MiB")
    six, four = tight.allocate(6 * MIB), tight.allocate(4 * MIB)
    tight.deallocate(six)
    tight.deallocate(four)
    ten = tight.allocate(10 * MIB)
    assert (ten.state, tight.pool_size) == ("live", 10 * MIB)


@pytest.mark.parametrize("seed", range(6))
def test_a_training_step_reserves_little_more_than_it_has_live(seed: int) -> None:
    blocks = training_step(layers=40 + 10 * seed, seed=seed)
    events = sorted(
        (when, starts, block.id, block.size)
        for block in blocks
        for when, starts in ((block.lower, 1), (block.upper, 0))
    )
    upstream = mr.StatisticsResourceAdaptor(mr.HostMemoryResource())
    resource = mr.PoolMemoryResource(upstream)
    held: dict[str, mr.DeviceBlock] = {}
    live = most = 0
    for _, starts, name, size in events:
        live += size if starts else -size
        most = max(most, live)
        if starts:
            held[name] = resource.allocate(size)
        else:
            resource.deallocate(held.pop(name))
    assert upstream.allocation_counts.peak_bytes <= 1.05 * most


def test_an_upstream_that_hands_out_what_it_handed_out_before_is_refused() -> None:
    memory = mr.HostMemoryResource().allocate(4 * MIB, alignment=4096)
    places = iter((memory.ptr, memory.ptr + MIB))
    deceived = mr.PoolMemoryResource(
        mr.CallbackMemoryResource(lambda nbytes, stream: next(places), lambda address, nbytes, stream: None)
    )
    first = deceived.allocate(2 * MIB)
    with pytest.raises(errors.TensormemError, match="overlaps"):
        deceived.allocate(2 * MIB)
    assert (first.state, deceived.pool_size) == ("live", 2 * MIB)


def test_without_an_initial_size_nothing_is_taken_before_it_is_needed() -> None:
    assert pool().pool_size == 0


def test_an_initial_size_that_the_upstream_does_not_have_is_refused_and_nothing_stays() -> None:
    limited = mr.LimitingResourceAdaptor(mr.HostMemoryResource(), "1MiB")
    with pytest.raises(errors.OutOfBudget):
        mr.PoolMemoryResource(limited, "2MiB")
    assert limited.bytes_outstanding == 0


def test_a_pool_cannot_start_larger_than_it_may_become() -> None:
    with pytest.raises(errors.InvalidSize):
        pool("2MiB", "1MiB")
    for nonsense in ("12 potatoes", -1):
        with pytest.raises(errors.InvalidSize):
            pool(nonsense)


def test_a_pool_never_holds_more_than_its_maximum() -> None:
    small = pool("1MiB", "3MiB")
    held = []
    with pytest.raises(errors.OutOfMemory):
        while True:
            held.append(small.allocate(100 * KIB))
    assert small.pool_size == 3 * MIB
    assert sum(block.nbytes for block in held) >= 0.95 * 3 * MIB


def test_where_a_generous_chunk_does_not_fit_what_was_asked_for_still_may() -> None:
    limited = mr.LimitingResourceAdaptor(mr.HostMemoryResource(), 100 * KIB)
    tight = mr.PoolMemoryResource(limited)
    assert tight.allocate(80 * KIB).state == "live"
    assert tight.pool_size == 80 * KIB


def test_waste_is_at_most_an_eighth() -> None:
    wide = pool("64MiB", "64MiB")
    for nbytes in (5 * KIB, 33 * KIB + 1, 100_001, 1_000_001):
        before = wide.total_free
        block = wide.allocate(nbytes)
        assert before - wide.total_free <= 1.125 * nbytes + 256
        wide.deallocate(block)


# --- Giving back ---


def test_trim_gives_empty_chunks_back_and_keeps_the_others() -> None:
    upstream = mr.HostMemoryResource()
    shrinking = mr.PoolMemoryResource(upstream, "1MiB")
    small, large = shrinking.allocate(100 * KIB), shrinking.allocate(4 * MIB)
    held = shrinking.pool_size
    assert (shrinking.trim(), shrinking.pool_size) == (0, held)
    shrinking.deallocate(large)
    assert shrinking.trim() == held - MIB
    assert (shrinking.pool_size, upstream.bytes_outstanding, small.state) == (MIB, MIB, "live")
    shrinking.deallocate(small)
    assert (shrinking.trim(), shrinking.pool_size, upstream.bytes_outstanding) == (MIB, 0, 0)
    assert shrinking.allocate(10).state == "live"


def test_trim_keeps_what_it_is_told_to_keep() -> None:
    kept = pool("1MiB")
    kept.deallocate(kept.allocate(4 * MIB))
    assert kept.pool_size >= 5 * MIB
    kept.trim("2MiB")
    assert kept.pool_size == MIB
    assert kept.trim("1MiB") == 0
    with pytest.raises(errors.InvalidSize):
        kept.trim("12 potatoes")


def test_above_the_release_threshold_empty_chunks_go_back_at_once() -> None:
    upstream = mr.HostMemoryResource()
    eager = mr.PoolMemoryResource(upstream, "1MiB", release_threshold="1MiB")
    eager.deallocate(eager.allocate(100))
    assert eager.pool_size == MIB
    eager.deallocate(eager.allocate(4 * MIB))
    assert eager.pool_size == upstream.bytes_outstanding == MIB


def test_above_the_release_threshold_chunks_go_back_when_their_stream_is_reaped() -> None:
    eager, gate = pool(release_threshold=0), Gate()
    with Stream(host()) as stream:
        gate.hold(stream)
        eager.deallocate(eager.allocate(MIB, stream), stream)
        eager.reap_pending()
        assert eager.pool_size > 0
        gate.open()
        stream.synchronize()
        eager.reap_pending()
        assert eager.pool_size == 0


def test_a_block_is_back_even_if_the_upstream_does_not_take_its_chunk() -> None:
    class Stubborn(mr.DeviceMemoryResource):
        def deallocate(self, block: mr.DeviceBlock, stream: StreamLike | None = None) -> None:
            raise OSError("not today")

    limited = mr.LimitingResourceAdaptor(
        mr.PoolMemoryResource(Stubborn(mr.HostMemoryResource()), release_threshold=0), "1MiB"
    )
    block = limited.allocate(1000)
    limited.deallocate(block)
    assert (block.state, limited.bytes_outstanding, limited.remaining) == ("freed", 0, MIB)


def test_a_chunk_that_the_upstream_does_not_take_stays_in_use_and_is_offered_again() -> None:
    upstream = mr.HostMemoryResource()
    moody = Moody(upstream)
    stuck = mr.PoolMemoryResource(moody)
    stuck.deallocate(stuck.allocate(1000))
    chunk = stuck.pool_size
    moody.on_deallocate = OSError("not today")
    with pytest.raises(errors.CallbackFailed) as caught:
        stuck.trim()
    assert caught.value.__cause__ is moody.on_deallocate
    assert (stuck.pool_size, stuck.total_free, stuck.bytes_outstanding) == (chunk, chunk, 0)
    stuck.deallocate(stuck.allocate(1000))
    assert stuck.pool_size == upstream.bytes_outstanding == chunk
    moody.on_deallocate = None
    assert stuck.trim() == chunk
    assert (stuck.pool_size, upstream.bytes_outstanding) == (0, 0)


def test_a_dropped_pool_gives_everything_back() -> None:
    upstream = mr.HostMemoryResource()
    dropped = mr.PoolMemoryResource(upstream, "8MiB")
    block = dropped.allocate(MIB)
    del dropped
    gc.collect()
    assert upstream.bytes_outstanding == 8 * MIB
    del block
    gc.collect()
    assert upstream.bytes_outstanding == 0


# --- What it tells ---


def test_fragmentation_is_one_minus_largest_by_total() -> None:
    checkered = pool("1MiB", "1MiB")
    blocks = [checkered.allocate(64 * KIB) for _ in range(16)]
    assert (checkered.total_free, checkered.largest_free, checkered.fragmentation) == (0, 0, 0.0)
    for block in blocks[::2]:
        checkered.deallocate(block)
    assert (checkered.total_free, checkered.largest_free) == (512 * KIB, 64 * KIB)
    assert checkered.fragmentation == 1 - 64 / 512
    with pytest.raises(errors.OutOfMemory) as caught:
        checkered.allocate(65 * KIB)
    facts = caught.value
    assert (facts.requested, facts.total_free, facts.largest_free) == (65 * KIB, 512 * KIB, 64 * KIB)
    assert facts.fragmentation == checkered.fragmentation
    for block in blocks[1::2]:
        checkered.deallocate(block)
    assert (checkered.total_free, checkered.largest_free, checkered.fragmentation) == (MIB, MIB, 0.0)


def test_when_the_upstream_refuses_the_error_still_tells_what_the_pool_has() -> None:
    faults = mr.FaultInjectionResourceAdaptor(mr.HostMemoryResource(), min_bytes=300 * KIB)
    short = mr.PoolMemoryResource(faults, "256KiB")
    block = short.allocate(56 * KIB)
    with pytest.raises(errors.OutOfMemory) as caught:
        short.allocate(300 * KIB)
    facts = caught.value
    assert (facts.requested, facts.total_free, facts.largest_free) == (300 * KIB, 200 * KIB, 200 * KIB)
    assert (short.pool_size, block.state) == (256 * KIB, "live")


def test_a_pool_says_how_full_it_is() -> None:
    full = pool("1MiB", "1MiB")
    block = full.allocate("512KiB")
    assert full.describe() == "PoolMemoryResource: 512 KiB of 1 MiB in use"
    full.deallocate(block)


# --- Streams ---


def test_memory_given_back_on_a_busy_stream_is_free_for_that_stream_only() -> None:
    shared, gate = pool("1MiB", "1MiB"), Gate()
    with Stream(host()) as busy:
        gate.hold(busy)
        block = shared.allocate(4 * KIB, busy)
        shared.deallocate(block, busy)
        assert (shared.pending_bytes, shared.total_free) == (4 * KIB, MIB - 4 * KIB)
        assert shared.allocate(4 * KIB).ptr != block.ptr
        heir = shared.allocate(4 * KIB, busy)
        assert (heir.ptr, shared.pending_bytes) == (block.ptr, 0)
        shared.deallocate(heir, busy)
        gate.open()
        busy.synchronize()
        shared.reap_pending()
        assert shared.pending_bytes == 0
        assert shared.total_free == MIB


def test_neighbours_that_wait_for_one_stream_coalesce() -> None:
    shared, gate = pool("1MiB", "1MiB"), Gate()
    with Stream(host()) as busy:
        gate.hold(busy)
        blocks = [shared.allocate(256 * KIB, busy) for _ in range(4)]
        for block in (blocks[1], blocks[3], blocks[0], blocks[2]):
            shared.deallocate(block, busy)
        whole = shared.allocate(MIB, busy)
        assert whole.ptr == min(block.ptr for block in blocks)
        gate.open()


def test_a_second_stream_gets_waiting_memory_only_behind_the_first() -> None:
    shared, gate, order = pool("1MiB", "1MiB"), Gate(), list[str]()
    with Stream(host()) as first, Stream(host()) as second:
        gate.hold(first)
        block = shared.allocate(MIB, first)
        first.launch(order.append, "the first one's work")
        shared.deallocate(block, first)
        heir = shared.allocate(MIB, second)
        assert heir.ptr == block.ptr
        second.launch(order.append, "the second one's work")
        assert (second.done, order) == (False, [])
        gate.open()
        second.synchronize()
        assert order == ["the first one's work", "the second one's work"]


def test_the_default_stream_waits_for_memory_before_it_gets_it() -> None:
    shared, gate, order = pool("1MiB", "1MiB"), Gate(), list[str]()
    with Stream(host()) as busy, Stream(host()) as opener:
        gate.hold(busy)
        block = shared.allocate(MIB, busy)
        busy.launch(order.append, "work")
        shared.deallocate(block, busy)
        opener.launch(gate.open)
        heir = shared.allocate(MIB)
        order.append("allocated")
        assert heir.ptr == block.ptr
        assert order == ["work", "allocated"]


def test_the_default_stream_does_not_wait_for_ever_for_a_stream_that_waits_for_its_caller() -> None:
    for patience in (0, 0.01):
        shared, gate = pool("1MiB", "1MiB", pending_timeout=patience), Gate()
        with Stream(host()) as busy:
            gate.hold(busy)
            block = shared.allocate(MIB, busy)
            shared.deallocate(block, busy)
            with pytest.raises(errors.OutOfMemory, match="did not pass in time") as caught:
                shared.allocate(MIB)
            assert (caught.value.requested, caught.value.total_free, shared.pending_bytes) == (MIB, 0, MIB)
            gate.open()
            busy.synchronize()
            assert shared.allocate(MIB).ptr == block.ptr


def test_the_default_stream_waits_for_any_room_not_for_all_streams() -> None:
    shared, stuck, gate = pool("1MiB", "1MiB", pending_timeout=float("inf")), Gate(), Gate()
    with Stream(host()) as never, Stream(host()) as busy, Stream(host()) as opener:
        stuck.hold(never)
        gate.hold(busy)
        shared.deallocate(shared.allocate(256 * KIB, never), never)
        block = shared.allocate(512 * KIB, busy)
        shared.deallocate(block, busy)
        opener.launch(gate.open)
        assert shared.allocate(512 * KIB).ptr == block.ptr
        assert shared.pending_bytes == 256 * KIB
        stuck.open()


def test_the_default_stream_does_not_wait_for_what_cannot_be_enough() -> None:
    shared, gate = pool("1MiB", "1MiB", pending_timeout=float("inf")), Gate()
    with Stream(host()) as busy:
        gate.hold(busy)
        kept = shared.allocate(512 * KIB)
        shared.deallocate(shared.allocate(256 * KIB, busy), busy)
        with pytest.raises(errors.OutOfMemory):
            shared.allocate(600 * KIB)
        assert (shared.pending_bytes, kept.state) == (256 * KIB, "live")
        gate.open()


def test_the_default_stream_does_not_wait_where_the_pool_can_grow() -> None:
    shared, gate = pool("1MiB", pending_timeout=float("inf")), Gate()
    with Stream(host()) as busy:
        gate.hold(busy)
        shared.deallocate(shared.allocate(MIB, busy), busy)
        assert shared.allocate(MIB).state == "live"
        assert shared.pool_size == 2 * MIB
        gate.open()


@pytest.mark.parametrize("nonsense", [-1, -0.5, float("nan"), "10", None, True])
def test_a_bad_timeout_is_refused(nonsense: float) -> None:
    with pytest.raises(errors.InvalidArgument, match="pending_timeout"):
        pool(pending_timeout=nonsense)
    with pytest.raises(errors.InvalidArgument, match="pending_timeout"):
        mr.ArenaMemoryResource(mr.HostMemoryResource(), pending_timeout=nonsense)


def test_threads_that_make_a_pool_grow_at_once_all_get_what_they_asked_for() -> None:
    # Exactly enough for all: what one of them is just adding must serve the others too.
    def take() -> None:
        start.wait()
        try:
            held.append(shared.allocate(MIB))
        except errors.OutOfMemory as error:
            refused.append(error)

    refused = list[BaseException]()
    for _ in range(50):
        shared, start, held = pool("1MiB", "8MiB"), threading.Barrier(8), list[mr.DeviceBlock]()
        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (refused, len(held)) == ([], 8)


def test_waiting_memory_that_is_too_small_is_left_alone() -> None:
    shared, gate = pool("1MiB", "1MiB"), Gate()
    with Stream(host()) as first, Stream(host()) as second:
        gate.hold(first)
        keep, block = shared.allocate(512 * KIB), shared.allocate(512 * KIB, first)
        shared.deallocate(block, first)
        with pytest.raises(errors.OutOfMemory):
            shared.allocate(600 * KIB, second)
        assert (shared.pending_bytes, keep.state) == (512 * KIB, "live")
        gate.open()


def test_a_pool_grows_rather_than_make_a_stream_wait() -> None:
    shared, gate = pool("1MiB", "4MiB"), Gate()
    with Stream(host()) as first, Stream(host()) as second:
        gate.hold(first)
        shared.deallocate(shared.allocate(MIB, first), first)
        heir = shared.allocate(MIB, second)
        assert second.done
        assert shared.pool_size == 2 * MIB
        assert heir.state == "live"
        gate.open()


def test_what_a_stream_gets_early_is_ready_for_others_only_when_it_has_passed() -> None:
    shared, gate = pool("1MiB", "1MiB"), Gate()
    with Stream(host()) as busy, Stream(host()) as other:
        gate.hold(busy)
        block = shared.allocate(4 * KIB, busy)
        host().fill(block, 0x11, 1, (4 * KIB, 1, 1), busy)
        shared.deallocate(block, busy)
        heir = shared.allocate(4 * KIB, busy)
        assert heir.ptr == block.ptr
        with shared.launch(other) as use:
            use.write(heir)
            host().fill(heir, 0x22, 1, (4 * KIB, 1, 1), other)
        assert not other.done
        gate.open()
        other.synchronize()
        assert set(ctypes.string_at(heir.ptr, 4 * KIB)) == {0x22}


def test_a_block_freed_on_another_stream_waits_for_the_one_it_was_made_on() -> None:
    shared, gate = pool("1MiB", "1MiB"), Gate()
    with Stream(host()) as busy:
        gate.hold(busy)
        early = shared.allocate(4 * KIB, busy)
        shared.deallocate(early, busy)
        block = shared.allocate(4 * KIB, busy)
        shared.deallocate(block, Stream.default(host()))
        assert (block.state, shared.bytes_outstanding) == ("retired", 4 * KIB)
        assert shared.allocate(4 * KIB).ptr != block.ptr
        gate.open()
        busy.synchronize()
        shared.reap_pending()
        assert (block.state, shared.bytes_outstanding) == ("freed", 0)


def test_while_a_stream_is_being_closed_its_memory_keeps_waiting(closing: Closing) -> None:
    shared = pool("1MiB", "1MiB")
    block = shared.allocate(4 * KIB, closing.stream)
    shared.deallocate(block, closing.stream)
    closing.start()
    shared.reap_pending()
    assert shared.pending_bytes == 4 * KIB
    assert shared.allocate(4 * KIB).ptr != block.ptr
    closing.finish()
    shared.reap_pending()
    assert shared.pending_bytes == 0


def test_memory_of_a_stream_that_is_being_closed_is_not_given_to_others(closing: Closing) -> None:
    shared = pool("1MiB", "1MiB", pending_timeout=0)
    block = shared.allocate(MIB, closing.stream)
    shared.deallocate(block, closing.stream)
    closing.start()
    with Stream(host()) as other:
        for stream in (other, None):
            with pytest.raises(errors.OutOfMemory):
                shared.allocate(MIB, stream)
        closing.finish()
        assert shared.allocate(MIB, other).ptr == block.ptr
