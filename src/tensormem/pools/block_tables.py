"""Owns: block tables with their report: the sequences of an engine over a block cache.

Must not know: tensors, models, and what is in a block.
"""

from tensormem import _core
from tensormem.pools.block_tables_stats import BlockTablesStats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

    from tensormem.pools.block_cache import BlockCache

__all__ = ["BlockTables"]


class BlockTables(_core.BlockTables):
    """Which blocks of a cache hold the tokens of which sequence, in order; `block_tokens` tokens a block.

    Sequences are allocated, extended, forked, truncated and freed in batches, each call all or nothing. Forked ones
    share blocks until one of them writes, and `admit` finds blocks that others filled with the same beginning. Blocks
    that can be found stay when nobody holds them, until this cache or another one of its budget needs the memory.
    Ids of sequences never come twice. Thread-safe.

    >>> import tensormem as tm
    >>> with tm.BlockCache("1GiB", block_size="256KiB") as cache, BlockTables(cache, block_tokens=4) as tables:
    ...     ids, matched = tables.admit([1, 2, 3, 4, 5], [5])
    ...     tables.commit(ids, [1, 2, 3, 4, 5], 5)  # their keys and values are computed
    ...     more, matched = tables.admit([1, 2, 3, 4, 9, 9], [6])
    ...     matched[0], tables.slots([ids[0], more[0]]).tolist()
    (4, [[0, 1], [0, 2]])
    """

    if TYPE_CHECKING:

        def __init__(self, cache: BlockCache, block_tokens: SupportsIndex = 16) -> None: ...
        @property
        def cache(self) -> BlockCache: ...

    def stats(self) -> BlockTablesStats:
        """What the tables have now."""
        return BlockTablesStats(**self._stats())
