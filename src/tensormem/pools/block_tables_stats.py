"""Owns: `BlockTablesStats`, what block tables have at one moment.

Must not know: tables.
"""

from typing import NamedTuple

__all__ = ["BlockTablesStats"]


class BlockTablesStats(NamedTuple):
    """What block tables have at one moment.

    >>> from tensormem.pools import BlockCache, BlockTables
    >>> with BlockCache("1GiB", "256KiB") as cache, BlockTables(cache, 16) as tables:
    ...     first = tables.allocate([40])
    ...     twin = tables.fork(first)
    ...     stats = tables.stats()
    >>> stats.sequences, stats.held_blocks, stats.resting_blocks
    (2, 3, 0)
    """

    sequences: int
    held_blocks: int
    """Blocks of sequences; those that several share are counted once."""
    resting_blocks: int
    """Blocks that nobody holds, and that `admit` finds by their contents."""
    asked_tokens: int
    """Tokens that `admit` was given."""
    matched_tokens: int
    """Those of them that were there already."""
    total_copied: int
    """Blocks copied before a write, because others held them."""
    total_evicted: int
    """Resting blocks that ended to make room."""

    @property
    def hit_rate(self) -> float:
        """The share of the tokens that need not be computed."""
        return self.matched_tokens / self.asked_tokens if self.asked_tokens else 0.0
