"""Owns: a block cache in the shape of vLLM's block pool: blocks with an index and a count of holders, found again by a
hash that the engine computes.

Indices are slots of our cache. Written from the public interface, and tested by calling it as the engine does; neither
vLLM nor a GPU was there. An engine that is free to choose takes `BlockTables`, which does all of this in batches.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence

from tensormem import errors
from tensormem.pools import BlockCache

__all__ = ["BlockPool", "KVCacheBlock"]


class KVCacheBlock:
    """A block of the pool, as the engine holds it."""

    __slots__ = ("_id", "block_hash", "block_id", "ref_cnt")

    def __init__(self, number: int, slot: int) -> None:
        self._id = number
        self.block_id = slot
        """Its index in every tensor over the cache."""
        self.ref_cnt = 1
        self.block_hash: Hashable | None = None

    def __repr__(self) -> str:
        return f"<KVCacheBlock {self.block_id}, holders: {self.ref_cnt}>"


class BlockPool:
    """At most `num_gpu_blocks` blocks of a cache. Index 0 is the null block, which is never given out.

    Blocks that were cached by a hash stay when nobody holds them, and end the least recently used first.

    >>> with BlockCache("1GiB", "64KiB") as cache:
    ...     pool = BlockPool(cache, 100)
    ...     first, second = pool.get_new_blocks(2)
    ...     pool.cache_full_blocks([first], ["a hash"])
    ...     pool.free_blocks([second, first])
    ...     pool.get_cached_block("a hash") is first, pool.get_num_free_blocks()
    (True, 99)
    """

    def __init__(self, cache: BlockCache, num_gpu_blocks: int, enable_caching: bool = True) -> None:
        self.cache = cache
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self._cached: dict[Hashable, KVCacheBlock] = {}
        self._resting: OrderedDict[int, KVCacheBlock] = OrderedDict()  # by id, the least recently used first
        self._held = 0
        (self.null_block,) = self._make(1)

    def _make(self, count: int) -> list[KVCacheBlock]:
        ids = self.cache.allocate(count)
        return [KVCacheBlock(*each) for each in zip(ids, self.cache.slots(ids), strict=True)]

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """So many blocks, each with one holder; `ValueError` if the pool has not so many, and nothing is taken."""
        if num_blocks > self.get_num_free_blocks():
            raise ValueError(f"the pool has {self.get_num_free_blocks()} free blocks, not {num_blocks}")
        over = self._held + len(self._resting) + num_blocks - (self.num_gpu_blocks - 1)
        self._evict(max(0, over))
        while True:
            try:
                made = self._make(num_blocks)
                break
            except errors.OutOfPhysicalMemory:
                if not self._evict(num_blocks):
                    raise
        self._held += num_blocks
        return made

    def _evict(self, count: int) -> int:
        ended = [self._resting.popitem(last=False)[1] for _ in range(min(count, len(self._resting)))]
        for block in ended:
            self._uncache(block)
        self.cache.deallocate([block._id for block in ended])
        return len(ended)

    def _uncache(self, block: KVCacheBlock) -> None:
        if self._cached.get(block.block_hash) is block:
            del self._cached[block.block_hash]
        block.block_hash = None

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """One holder more for each, as for a prefix that was found."""
        found = [block for block in blocks if block is not self.null_block]
        for block in found:
            if block.ref_cnt == 0 and block._id not in self._resting:
                raise errors.UseAfterFree(block._id, 0, what="the block was freed before")
        for block in found:
            if block.ref_cnt == 0:
                del self._resting[block._id]
                self._held += 1
            block.ref_cnt += 1

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """One holder less for each. Those that nobody holds end, the first ones first when they are cached."""
        leaving = [block for block in ordered_blocks if block is not self.null_block]
        for block, count in Counter(leaving).items():
            if block.ref_cnt < count:
                raise errors.UseAfterFree(block._id, 0, what="the block was freed before")
        ended = []
        for block in leaving:
            block.ref_cnt -= 1
            if block.ref_cnt:
                continue
            self._held -= 1
            if block.block_hash is not None:
                self._resting[block._id] = block
            else:
                ended.append(block._id)
        self.cache.deallocate(ended)

    def cache_full_blocks(self, blocks: Sequence[KVCacheBlock], block_hashes: Sequence[Hashable]) -> None:
        """Let full blocks be found by the hashes that the engine computed. The first with a hash is the one found."""
        if not self.enable_caching:
            return
        for block, value in zip(blocks, block_hashes, strict=True):
            if self._cached.setdefault(value, block) is block:
                block.block_hash = value

    def get_cached_block(self, block_hash: Hashable) -> KVCacheBlock | None:
        """The block with this hash, or None. `touch` it to hold it."""
        return self._cached.get(block_hash)

    def get_num_free_blocks(self) -> int:
        """Blocks that can be had; those that rest are free."""
        return self.num_gpu_blocks - 1 - self._held

    def get_usage(self) -> float:
        """The share of the blocks that is held."""
        return self._held / max(1, self.num_gpu_blocks - 1)

    def reset_prefix_cache(self) -> bool:
        """Forget all hashes; False, and nothing is forgotten, while blocks are held."""
        if self._held:
            return False
        self._evict(len(self._resting))
        self._cached.clear()
        return True
