"""Block caches in the shapes of kvcached and of vLLM's pool, called as those engines call them."""

from __future__ import annotations

import pytest

from tensormem import errors
from tensormem.interop.kvcached import KVCacheManager
from tensormem.interop.vllm import BlockPool
from tensormem.pools import BlockCache

PAGE = 64 << 10
CELL = 256  # bytes of keys of a token in a layer: blocks of 16 tokens, 16 a page


# --- kvcached ---


def test_indices_address_keys_and_values_of_every_layer() -> None:
    with KVCacheManager(500, 16, CELL, 3, page_size=PAGE) as manager:
        layers = manager.kv_tensors("float16", (16, 2, 64))
        indices = manager.alloc(20)
        assert indices == list(range(20))
        for number, (keys, values) in enumerate(layers):
            keys.numpy()[indices] = number
            values.numpy()[indices] = -number
        assert manager.get_mapped_memory_size() == 2 * 6 * PAGE
        assert manager.get_mapped_memory_size("mb") == 0.75
        manager.free(indices[:10])
        assert all((keys.numpy()[indices[10:]] == number).all() for number, (keys, _) in enumerate(layers))
        manager.free(indices[10:])
        manager.trim()
        assert manager.get_mapped_memory_size() == 0
        del keys, values, layers


def test_the_first_block_can_be_kept_for_padding() -> None:
    with KVCacheManager(100, 16, CELL, 1, reserve_null_block=True, page_size=PAGE) as manager:
        assert manager.null_block == [0]
        assert manager.alloc(2) == [1, 2]
        assert manager.available_size() == 97


def test_what_is_reserved_is_given_first_and_no_memory_is_none() -> None:
    with KVCacheManager(64, 16, CELL, 1, page_size=PAGE) as manager:
        assert manager.try_to_reserve(10)
        assert not manager.try_to_reserve(60)
        assert manager.available_size() == 64
        first = manager.alloc(4)
        assert first == [0, 1, 2, 3]
        with pytest.raises(errors.InvalidArgument):
            manager.free([5])
        manager.free_reserved()
        assert manager.alloc(61) is None
        rest = manager.alloc(60)
        assert rest is not None and manager.available_size() == 0
        manager.free([*first, *rest])
        with pytest.raises(errors.NotMapped):
            manager.free([0])


def test_a_smaller_limit_refuses_growth_until_enough_is_freed() -> None:
    with KVCacheManager(640, 16, CELL, 2, page_size=PAGE) as manager:
        indices = manager.alloc(64)
        assert indices is not None
        assert not manager.resize(2 * PAGE)
        assert (manager.available_size(), manager.alloc(1)) == (0, None)
        manager.free(indices[16:])
        assert manager.resize(2 * PAGE)
        assert manager.available_size() == 16
        assert len(manager.alloc(16) or []) == 16
        assert manager.resize(4 * PAGE)
        with pytest.raises(errors.InvalidSize):
            manager.resize(0)


# --- vLLM ---


def test_a_pool_gives_blocks_counts_holders_and_keeps_the_null_block() -> None:
    with BlockCache("64MiB", "16KiB", PAGE) as cache:
        pool = BlockPool(cache, 11)
        assert pool.null_block.block_id == 0
        blocks = pool.get_new_blocks(4)
        assert [block.block_id for block in blocks] == [1, 2, 3, 4]
        assert (pool.get_num_free_blocks(), pool.get_usage()) == (6, 0.4)
        pool.touch(blocks[:1])
        pool.free_blocks([*reversed(blocks), pool.null_block])
        assert (pool.get_num_free_blocks(), blocks[0].ref_cnt) == (9, 1)
        before = cache.stats()
        with pytest.raises(ValueError, match="9 free"):
            pool.get_new_blocks(10)
        assert cache.stats() == before
        with pytest.raises(errors.UseAfterFree):
            pool.free_blocks(blocks[1:2])
        pool.free_blocks(blocks[:1])
        assert cache.stats().live_blocks == 1


def test_cached_blocks_are_found_until_the_least_recently_used_must_go() -> None:
    with BlockCache("64MiB", "16KiB", PAGE) as cache:
        pool = BlockPool(cache, 5)
        blocks = pool.get_new_blocks(4)
        pool.cache_full_blocks(blocks, ["a", "b", "c", "d"])
        pool.free_blocks(reversed(blocks))
        assert pool.get_num_free_blocks() == 4
        found = pool.get_cached_block("d")
        assert found is blocks[3]
        pool.touch([found])
        pool.get_new_blocks(2)
        assert [pool.get_cached_block(each) is not None for each in "abcd"] == [True, False, False, True]
        assert not pool.reset_prefix_cache()
        with pytest.raises(errors.UseAfterFree):
            pool.touch([blocks[1]])


def test_resting_blocks_end_when_the_budget_is_full() -> None:
    with BlockCache("64MiB", "16KiB", PAGE, physical_limit=2 * PAGE) as cache:
        pool = BlockPool(cache, 100)
        blocks = pool.get_new_blocks(7)
        pool.cache_full_blocks(blocks, range(7))
        with pytest.raises(errors.OutOfPhysicalMemory):
            pool.get_new_blocks(1)
        pool.free_blocks(blocks)
        assert len(pool.get_new_blocks(3)) == 3
        assert cache.stats().live_blocks == 8
        assert pool.get_cached_block(0) is None and pool.get_cached_block(6) is blocks[6]
