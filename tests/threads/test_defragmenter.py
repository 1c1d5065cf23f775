"""Packing in the background: never inside a step, and an engine that applies the remaps finds every byte."""

from __future__ import annotations

import gc
import weakref

import numpy
import pytest

from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.pools import BlockCache, Defragmenter

PAGE = 64 << 10
BLOCK = 16 << 10


def scatter(cache: BlockCache, count: int) -> list[int]:
    """Ids of which each is alone in its page."""
    ids = cache.allocate(4 * count)
    cache.deallocate([number for place, number in enumerate(ids) if place % 4])
    return list(ids[::4])


def test_an_engine_that_applies_the_remaps_finds_its_blocks() -> None:
    with nothing_left_behind(), BlockCache("8MiB", BLOCK, PAGE, release_threshold=0) as cache:
        tensor = cache.tensor("int64", (BLOCK // 8,))
        with Defragmenter(cache, max_bytes=2 * BLOCK) as defragmenter:
            with defragmenter.step():
                ids = scatter(cache, 12)
                mine = numpy.asarray(cache.slots(ids))  # what an engine keeps
                tensor.numpy()[mine, 0] = range(12)
            assert defragmenter.settle(60)
            with defragmenter.step() as remaps:
                assert remaps
                for old, new in remaps:
                    table = dict(zip(old, new, strict=True))
                    mine = numpy.array([table.get(slot, slot) for slot in mine])
                assert mine.tolist() == list(cache.slots(ids))
                assert tensor.numpy()[mine, 0].tolist() == list(range(12))
                assert cache.stats().used_pages == 3
            with defragmenter.step() as remaps:
                assert remaps == []
            assert defragmenter.failure is None
        tensor.close()


def test_nothing_moves_inside_a_step() -> None:
    with BlockCache("8MiB", BLOCK, PAGE) as cache, Defragmenter(cache) as defragmenter:
        with defragmenter.step():
            ids = scatter(cache, 8)
            before = cache.slots(ids)
            with defragmenter.step():
                pass  # another engine's, which ends inside
            assert defragmenter.settle(60)
            assert cache.slots(ids) == before
        assert defragmenter.settle(60)
        assert cache.stats().used_pages == 2


def test_a_cache_that_is_packed_well_enough_is_left_alone() -> None:
    with BlockCache("8MiB", BLOCK, PAGE) as cache, Defragmenter(cache, fragmentation=0.8) as defragmenter:
        with defragmenter.step():
            ids = scatter(cache, 8)
            before = cache.slots(ids)
        assert defragmenter.settle(60)
        assert cache.slots(ids) == before


def test_a_failure_is_kept_and_a_closed_one_refuses_steps() -> None:
    def refuse(*moved: object) -> None:
        raise RuntimeError("no")

    with BlockCache("8MiB", BLOCK, PAGE, on_remap=refuse) as cache:
        with Defragmenter(cache) as defragmenter:
            with defragmenter.step():
                scatter(cache, 8)
            assert defragmenter.settle(60)
            assert isinstance(defragmenter.failure, errors.CallbackFailed)
            with defragmenter.step() as remaps:
                assert len(remaps) == 1  # told all the same
        defragmenter.close()
        with pytest.raises(errors.UseAfterRelease), defragmenter.step():
            pass
        with pytest.raises(errors.InvalidArgument):
            Defragmenter(cache, fragmentation=2)


def test_one_that_is_dropped_ends_its_thread_and_keeps_nothing() -> None:
    with nothing_left_behind():
        cache = BlockCache("8MiB", BLOCK, PAGE)
        defragmenter = Defragmenter(cache)
        thread, kept = defragmenter._thread, weakref.ref(defragmenter)
        del cache, defragmenter
        gc.collect()
        thread.join(60)
        assert (thread.is_alive(), kept()) == (False, None)
