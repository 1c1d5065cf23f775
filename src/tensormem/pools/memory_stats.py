"""Owns: `MemoryStats`, what an elastic pool has at one moment.

Must not know: pools.
"""

from typing import NamedTuple

__all__ = ["MemoryStats"]


class MemoryStats(NamedTuple):
    """What an elastic pool has at one moment, in bytes and pages.

    >>> from tensormem.pools import VirtualMemoryPool
    >>> with VirtualMemoryPool("1GiB") as pool:
    ...     stats = pool.stats()
    >>> stats.virtual_capacity, stats.physical_usage, stats.fragmentation
    (1073741824, 0, 0.0)
    """

    virtual_capacity: int
    page_size: int
    mapped_pages: int
    cached_pages: int
    """Pages without an address, kept for reuse or made ahead."""
    physical_usage: int
    """Memory of all pages, mapped and cached."""
    peak_physical_usage: int
    live_bytes: int
    live_blocks: int
    retired_bytes: int
    """Given back, and waiting for streams that use it."""
    suspended_bytes: int
    """Addresses that gave up their memory for now."""
    total_free: int
    """Free addresses."""
    largest_free: int
    """The longest run of free addresses."""
    created_pages: int
    recycled_pages: int

    @property
    def fragmentation(self) -> float:
        """The share of the mapped memory that nothing lies in: what compaction can win. An empty pool has 0."""
        mapped = self.mapped_pages * self.page_size
        return 1 - min(1.0, (self.live_bytes + self.retired_bytes) / mapped) if mapped else 0.0

    @property
    def address_fragmentation(self) -> float:
        """1 - longest run of free addresses / all of them."""
        return 1 - self.largest_free / self.total_free if self.total_free else 0.0
