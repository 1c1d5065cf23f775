"""Owns: `CompactionReport`, what one compaction did.

Must not know: pools.
"""

from typing import NamedTuple

__all__ = ["CompactionReport"]


class CompactionReport(NamedTuple):
    """What one call of `compact` did.

    >>> from tensormem.pools import VirtualMemoryPool
    >>> with VirtualMemoryPool("1GiB") as pool:
    ...     pool.compact().finished
    True
    """

    blocks_moved: int
    pages_remapped: int
    """Moved without copying a byte."""
    bytes_copied: int
    """Of pages that were only partly filled."""
    pages_released: int
    """Empty now, and in the cache or given back."""
    seconds: float
    finished: bool
    """Whether nothing is left to do; otherwise the limit stopped it, and the next call goes on."""
