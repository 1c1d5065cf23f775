"""Owns: `BlockCacheStats`, what a block cache has at one moment.

Must not know: caches.
"""

from typing import NamedTuple

__all__ = ["BlockCacheStats"]


class BlockCacheStats(NamedTuple):
    """What a block cache has at one moment.

    >>> from tensormem.pools import BlockCache
    >>> with BlockCache("1GiB", "256KiB") as cache:
    ...     ids = cache.allocate(9)
    ...     stats = cache.stats()
    >>> stats.live_blocks, stats.blocks_per_frame, stats.used_pages, stats.floor_pages, stats.fragmentation
    (9, 8, 2, 2, 0.0)
    """

    block_size: int
    page_size: int
    planes: int
    """In how many tensors of the same slots each block has a part."""
    pages_per_frame: int
    """Pages of a plane that are mapped together, because blocks fit into them with less waste than into one."""
    blocks_per_frame: int
    capacity_blocks: int
    live_blocks: int
    retired_blocks: int
    """Freed, and waiting for streams that use them."""
    pinned_blocks: int
    used_pages: int
    """Pages of frames that have a block in them."""
    floor_pages: int
    """The pages that the blocks would need if they were packed."""
    cached_pages: int
    """Empty pages, kept for reuse or made ahead."""
    physical_usage: int
    """Memory of all pages, used and cached."""
    peak_physical_usage: int
    created_pages: int
    total_allocated: int
    total_freed: int
    total_moved: int

    @property
    def live_bytes(self) -> int:
        """The bytes of the blocks themselves."""
        return self.live_blocks * self.block_size * self.planes

    @property
    def fragmentation(self) -> float:
        """The share of the used pages that packing would win. An empty cache has 0."""
        return 1 - self.floor_pages / self.used_pages if self.used_pages else 0.0
