"""A block cache gives up its memory between requests: blocks, slots and addresses stay, and contents if asked."""

from __future__ import annotations

import tempfile

import pytest

from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.drivers import host
from tensormem.pools import BlockCache, PhysicalLimit
from tensormem.streams import Stream
from tensormem.testing.faults import each_system_call_fails
from tensormem.testing.resources import Gate

PAGE = 64 << 10


def write(cache: BlockCache, ids: list[int]) -> None:
    for number in ids:
        for plane in range(cache.planes):
            with cache.view(number, plane=plane) as view:
                view[:8] = (number + plane).to_bytes(8, "little")
                view[-1] = plane + 1


def check(cache: BlockCache, ids: list[int]) -> None:
    for number in ids:
        for plane in range(cache.planes):
            with cache.view(number, plane=plane) as view:
                assert bytes(view[:8]) == (number + plane).to_bytes(8, "little")
                assert view[-1] == plane + 1


@pytest.mark.parametrize("contents", ["main", "file", tempfile.gettempdir()])
@pytest.mark.parametrize(("block", "planes"), [(16 << 10, 1), (22 << 10, 3)])
def test_everything_is_back_at_the_same_addresses(contents: str, block: int, planes: int) -> None:
    with nothing_left_behind(), BlockCache("12MiB", block, PAGE, planes=planes) as cache:
        ids = list(cache.allocate(30))
        cache.deallocate(ids[5:9])
        left = ids[:5] + ids[9:]
        write(cache, left)
        addresses, slots = cache.addresses(left), cache.slots(left)
        held = cache.stats().used_pages * PAGE
        assert cache.suspend(contents) >= held
        assert cache.physical_memory_usage == 0
        assert (cache.addresses(left), cache.slots(left)) == (addresses, slots)
        assert cache.stats().live_blocks == len(left)
        assert cache.resume() == held
        assert cache._is_valid()
        check(cache, left)
        cache.deallocate(left)


def test_contents_that_were_dropped_need_no_room() -> None:
    with BlockCache("4MiB", "16KiB", PAGE) as cache:
        ids = cache.allocate(4)
        cache.suspend("drop")
        cache.resume()
        cache.deallocate(ids)


def test_while_suspended_blocks_cannot_change() -> None:
    with BlockCache("4MiB", "16KiB", PAGE) as cache, cache.tensor("int8", (16 << 10,)) as tensor:
        ids = cache.allocate(4)
        cache.suspend()
        stats = cache.stats()
        for call in (
            lambda: cache.allocate(1),
            lambda: cache.deallocate(ids),
            lambda: cache.pin(ids),
            lambda: cache.view(ids[0]),
            lambda: cache.copy_blocks(ids[:1], ids[1:2]),
            lambda: cache.compact(),
            lambda: cache.suspend(),
            lambda: tensor[0].tolist(),
        ):
            with pytest.raises(errors.InvalidArgument, match="suspended"):
                call()
        assert cache.stats() == stats
        cache.resume()
        with pytest.raises(errors.InvalidArgument, match="not suspended"):
            cache.resume()


def test_a_suspended_cache_can_be_closed() -> None:
    with nothing_left_behind():
        cache = BlockCache("4MiB", "16KiB", PAGE)
        cache.allocate(4)
        cache.suspend()
        cache.close()
        del cache


def test_what_is_in_use_is_not_suspended() -> None:
    gate = Gate()
    with Stream(host()) as stream, BlockCache("4MiB", "16KiB", PAGE) as cache:
        ids = cache.allocate(4)
        with cache.view(ids[0]), pytest.raises(errors.StillHeld):
            cache.suspend()
        gate.hold(stream)
        try:
            cache.record_use(ids, stream)
            with pytest.raises(errors.StreamMisuse):
                cache.suspend()
        finally:
            gate.open()
        stream.synchronize()
        with pytest.raises(errors.InvalidArgument):
            cache.suspend("somewhere")
        cache.deallocate(ids)


def test_another_cache_uses_the_memory_meanwhile_and_resuming_is_all_or_nothing() -> None:
    budget = PhysicalLimit(8 * PAGE)
    one, other = (BlockCache("4MiB", "16KiB", PAGE, budget=budget, release_threshold=0) for _ in range(2))
    with one, other:
        ids = list(one.allocate(32))
        write(one, ids)
        one.suspend()
        guests = other.allocate(32)
        with pytest.raises(errors.OutOfPhysicalMemory):
            one.resume()
        assert one.physical_memory_usage == 0
        other.deallocate(guests)
        assert one.resume() == 8 * PAGE
        check(one, ids)


def test_every_failing_system_call_leaves_it_suspended_or_awake_with_its_contents() -> None:
    with nothing_left_behind(), BlockCache("12MiB", "16KiB", PAGE, planes=2, release_threshold=0) as cache:
        ids = list(cache.allocate(12))
        write(cache, ids)

        def scenario() -> None:
            cache.suspend()
            cache.resume()

        for raised in each_system_call_fails(scenario):
            if raised is not None and cache._spilled is not None:
                cache.resume()
            assert cache._is_valid()
            check(cache, ids)
