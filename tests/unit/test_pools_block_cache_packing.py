"""Block caches: packing, pins, views, hints, streams, and the end."""

from __future__ import annotations

import gc
import pickle
from array import array
from collections.abc import Iterator

import numpy
import pytest

import tensormem as tm
from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.drivers import host
from tensormem.pools import BlockCache
from tensormem.streams import Stream
from tensormem.testing.resources import Gate

KIB = 1 << 10
PAGE = 64 * KIB
BLOCK = 16 * KIB  # four a page


@pytest.fixture
def cache() -> Iterator[BlockCache]:
    with nothing_left_behind():
        with BlockCache("4MiB", BLOCK, PAGE, release_threshold=0) as made:
            yield made
            assert made._is_valid()
        del made


def write(cache: BlockCache, ids: array[int]) -> None:
    for number in ids:
        with cache.view(number) as view:
            view[:8] = number.to_bytes(8, "little")
            view[-8:] = number.to_bytes(8, "big")


def check(cache: BlockCache, ids: array[int]) -> None:
    for number in ids:
        with cache.view(number) as view:
            assert bytes(view[:8]) == number.to_bytes(8, "little")
            assert bytes(view[-8:]) == number.to_bytes(8, "big")


# --- Packing ---


def test_compaction_reaches_the_floor_and_keeps_every_byte(cache: BlockCache) -> None:
    ids = cache.allocate(40)
    write(cache, ids)
    cache.deallocate([number for i, number in enumerate(ids) if i % 4])
    left = ids[::4]
    assert cache.stats().fragmentation == pytest.approx(0.7)
    done = cache.compact()
    assert (done.finished, done.blocks_moved, done.bytes_copied, done.pages_released) == (True, 7, 7 * BLOCK, 7)
    assert cache.physical_memory_usage == 3 * PAGE
    assert cache.stats().fragmentation == 0
    check(cache, left)
    assert cache.compact().blocks_moved == 0


def test_moves_are_told_in_batches() -> None:
    told: list[tuple[array[int], array[int], array[int]]] = []
    with BlockCache("4MiB", BLOCK, PAGE, on_move=lambda *moves: told.append(moves)) as cache:
        ids = cache.allocate(16)
        before = dict(zip(ids, cache.addresses(ids), strict=True))
        cache.deallocate([number for i, number in enumerate(ids) if i % 4])
        cache.compact()
        ((moved, old, new),) = told
        assert [before[number] for number in moved] == list(old)
        assert cache.addresses(moved) == new
        cache.compact()
        assert len(told) == 1


def test_a_callback_that_raises_is_told_after_the_work_is_done() -> None:
    def refuse(*moves: object) -> None:
        raise RuntimeError("no")

    with BlockCache("4MiB", BLOCK, PAGE, on_move=refuse) as cache:
        ids = cache.allocate(8)
        cache.deallocate([*ids[1:4], *ids[5:]])
        with pytest.raises(errors.CallbackFailed) as caught:
            cache.compact()
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert cache.stats().used_pages == 1


def test_a_callback_may_use_the_cache() -> None:
    made: list[BlockCache] = []

    def reenter(ids: array[int], old: array[int], new: array[int]) -> None:
        made[0].deallocate(ids)
        made[0].compact()

    with BlockCache("4MiB", BLOCK, PAGE, on_move=reenter) as cache:
        made.append(cache)
        ids = cache.allocate(8)
        cache.deallocate([*ids[1:4], *ids[5:]])
        cache.compact()
        assert cache.stats().live_blocks == 1


def test_compaction_stops_at_its_limits_and_goes_on(cache: BlockCache) -> None:
    ids = cache.allocate(40)
    cache.deallocate([number for i, number in enumerate(ids) if i % 4])
    done = cache.compact(max_bytes=2 * BLOCK)
    assert (done.finished, done.blocks_moved) == (False, 2)
    assert not cache.compact(max_seconds=1e-12).finished
    while not cache.compact(max_bytes=BLOCK).finished:
        pass
    assert cache.stats().used_pages == 3
    with pytest.raises(errors.InvalidSize):
        cache.compact(max_bytes=BLOCK - 1)
    for bad in (0, -1, float("nan")):
        with pytest.raises(errors.InvalidArgument):
            cache.compact(max_seconds=bad)


def test_blocks_of_several_pages_and_odd_sizes_are_packed() -> None:
    for size in (22 * KIB, 3 * PAGE, PAGE + 512, 100, 40_000):
        with BlockCache("64MiB", size, PAGE, release_threshold=0) as cache:
            ids = cache.allocate(64)
            write(cache, ids)
            cache.deallocate(ids[1::2])
            cache.compact()
            check(cache, ids[::2])
            stats = cache.stats()
            assert stats.used_pages == stats.floor_pages
            assert cache.physical_memory_usage == stats.floor_pages * PAGE
            assert cache._is_valid()


# --- Pins, views, hints ---


def test_pinned_blocks_stay_and_cannot_be_freed(cache: BlockCache) -> None:
    ids = cache.allocate(8)
    cache.deallocate([*ids[1:4], *ids[5:]])
    cache.pin([ids[4], ids[4]])
    where = cache.address(ids[4])
    with pytest.raises(errors.StillHeld) as caught:
        cache.deallocate([ids[0], ids[4]])
    assert (caught.value.address, caught.value.holds) == (where, 2)
    cache.compact()
    assert cache.address(ids[4]) == where
    with pytest.raises(errors.InvalidArgument):
        cache.unpin([ids[4], ids[0]])
    cache.unpin([ids[4], ids[4]])
    cache.deallocate(ids[4:5])


def test_a_view_pins_its_block_and_close_waits_for_it(cache: BlockCache) -> None:
    ids = cache.allocate(1)
    view = cache.view(ids[0])
    assert (view.nbytes, view.readonly) == (BLOCK, False)
    values = numpy.frombuffer(view, numpy.float32)
    values[:] = 2
    with pytest.raises(errors.StillHeld):
        cache.deallocate(ids)
    with pytest.raises(errors.StillHeld):
        cache.close()
    del values
    view.release()
    cache.deallocate(ids)


def test_hints_empty_the_most_pages_for_the_fewest_blocks(cache: BlockCache) -> None:
    ids = cache.allocate(12)
    cache.deallocate(ids[1:6])
    assert list(cache.eviction_hints(1)) == [ids[0]]
    assert list(cache.eviction_hints(2 * PAGE)) == [ids[0], ids[6], ids[7]]
    assert list(cache.eviction_hints(0)) == []
    assert sorted(cache.eviction_hints("1GiB")) == sorted([ids[0], *ids[6:]])
    assert list(cache.eviction_hints(1, candidates=[ids[0], *ids[8:]])) == [ids[0]]
    assert list(cache.eviction_hints(1, candidates=[ids[6]])) == []
    cache.pin(ids[:1])
    assert list(cache.eviction_hints(1)) == [ids[6], ids[7]]
    cache.unpin(ids[:1])
    before = cache.physical_memory_usage
    cache.deallocate(cache.eviction_hints(2 * PAGE))
    assert before - cache.physical_memory_usage == 2 * PAGE


# --- Streams ---


def test_blocks_freed_on_a_stream_come_back_after_it_and_used_ones_do_not_move(cache: BlockCache) -> None:
    gate = Gate()
    with Stream(host()) as stream:
        ids = cache.allocate(8)
        cache.deallocate([*ids[1:4], *ids[6:]])
        gate.hold(stream)
        try:
            cache.record_use(ids[:1], stream)
            cache.deallocate(ids[4:5], stream=stream)
            assert ids[4] not in cache
            assert (cache.stats().retired_blocks, cache.stats().live_blocks) == (1, 2)
            assert cache.compact().blocks_moved == 0
            cache.deallocate(ids[:1])
            assert cache.stats().retired_blocks == 2
        finally:
            gate.open()
        stream.synchronize()
        cache.reap_pending()
        assert cache.stats().retired_blocks == 0
        assert cache.physical_memory_usage == PAGE


def test_a_destroyed_stream_is_refused_and_nothing_changes(cache: BlockCache) -> None:
    ids = cache.allocate(2)
    stream = Stream(host())
    stream.close()
    for call in (cache.deallocate, cache.record_use):
        with pytest.raises(errors.StreamMisuse):
            call(ids, stream)
    assert cache.stats().live_blocks == 2


# --- The object ---


def test_a_closed_cache_says_so() -> None:
    cache = BlockCache("4MiB", BLOCK, PAGE)
    ids = cache.allocate(3)
    cache.close()
    cache.close()
    assert cache.closed
    for call in (lambda: cache.allocate(1), lambda: cache.deallocate(ids), cache.stats, cache.compact, cache.__enter__):
        with pytest.raises(errors.UseAfterRelease):
            call()
    assert repr(cache) == "<BlockCache, closed>"


def test_dropping_a_cache_gives_everything_back_and_a_view_keeps_it() -> None:
    with nothing_left_behind():
        cache = BlockCache("4MiB", BLOCK, PAGE)
        view = cache.view(cache.allocate(1)[0])
        del cache
        gc.collect()
        view[0] = 1
        view.release()
        del view


def test_it_is_named_at_the_top_and_cannot_be_pickled(cache: BlockCache) -> None:
    assert tm.BlockCache is BlockCache
    assert "0 blocks of 16 KiB" in repr(cache)
    assert cache.where == "host"
    with pytest.raises(TypeError):
        pickle.dumps(cache)
    with pytest.raises(errors.InvalidArgument):
        cache.__init__("4MiB", BLOCK, PAGE)  # type: ignore[misc]
