"""Owns: a block cache in the shape of kvcached's manager, for engines that call that: blocks are plain indices into one
tensor of keys and one of values for each layer.

Indices are slots of our cache. Written from the public interface, and tested by calling it as engines do; neither
kvcached nor a GPU was there. Must not know: engines.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from tensormem import errors
from tensormem._core import Tensor
from tensormem.pools import BlockCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem._core import Budget
    from tensormem.drivers.where import WhereLike

__all__ = ["KVCacheManager"]

_UNITS = {"bytes": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


class KVCacheManager:
    """`num_blocks` blocks of `block_size` tokens, `cell_size` bytes for the keys (or values) of a token in one layer.

    `alloc` gives indices, or None when there is no memory; `free` takes them back. `resize` sets the memory for the
    keys (or values) of one layer, as there; below what is used, allocation is refused until enough is freed.

    >>> with KVCacheManager(1000, 16, 256, num_layers=2, page_size="64KiB") as manager:
    ...     indices = manager.alloc(3)
    ...     manager.kv_tensors("float16", (16, 128))[0][0].shape, indices
    ((1008, 16, 128), [0, 1, 2])
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        cell_size: int,
        num_layers: int,
        *,
        reserve_null_block: bool = False,
        page_size: int | str = "2MiB",
        device: WhereLike = "main",
        budget: Budget | None = None,
    ) -> None:
        self.num_blocks = num_blocks
        self.num_layers = num_layers
        self.block_mem_size = block_size * cell_size
        planes = 2 * num_layers
        self.cache = BlockCache(
            num_blocks * self.block_mem_size * planes,
            self.block_mem_size,
            page_size,
            device,
            budget=budget,
            planes=planes,
        )
        self.reserved_blocks: list[int] = []
        self.null_block = self.alloc(1) if reserve_null_block else None

    def kv_tensors(self, dtype: object, shape: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer, indexed by block."""
        planes = [self.cache.tensor(dtype, shape, plane=plane) for plane in range(self.cache.planes)]
        return list(zip(planes[::2], planes[1::2], strict=True))

    def alloc(self, need_size: int) -> list[int] | None:
        """So many indices, or None. Reserved ones are given first."""
        given, rest = self.reserved_blocks[:need_size], max(0, need_size - len(self.reserved_blocks))
        try:
            if self.cache.stats().live_blocks + rest > self.num_blocks:
                return None
            made = self.cache.slots(self.cache.allocate(rest))
        except (errors.OutOfPhysicalMemory, errors.OutOfVirtualMemory):
            return None
        del self.reserved_blocks[:need_size]
        return [*given, *made]

    def free(self, indices: Sequence[int]) -> None:
        """Give indices back. One that is not in use, or reserved, is refused: `NotMapped`, `InvalidArgument`."""
        if not set(self.reserved_blocks).isdisjoint(indices):
            raise errors.InvalidArgument("reserved blocks are freed by free_reserved")
        self.cache.deallocate(self.cache.blocks_at(array("q", indices)))

    def try_to_reserve(self, need_size: int) -> bool:
        """Keep so many blocks for later calls of `alloc`; False if there is no memory."""
        held, self.reserved_blocks = self.reserved_blocks, []
        made = self.alloc(need_size)
        self.reserved_blocks = [*held, *(made or [])]
        return made is not None

    def free_reserved(self) -> None:
        """Give reserved blocks back."""
        held, self.reserved_blocks = self.reserved_blocks, []
        self.free(held)

    def resize(self, new_mem_size: int) -> bool:
        """The most memory for the keys (or values) of one layer; False if more is in use: growth waits for frees."""
        if new_mem_size <= 0:
            raise errors.InvalidSize(new_mem_size, what="the memory of a layer")
        self.cache.trim()
        self.cache.physical_limit = new_mem_size * self.cache.planes
        return self.cache.physical_memory_usage <= new_mem_size * self.cache.planes

    def trim(self) -> None:
        """Give empty pages back."""
        self.cache.trim()

    def available_size(self) -> int:
        """How many more blocks `alloc` would give."""
        stats = self.cache.stats()
        frame = stats.pages_per_frame * stats.planes * stats.page_size
        free = stats.used_pages * stats.page_size // frame * stats.blocks_per_frame - stats.live_blocks
        limit = self.cache.physical_limit
        if limit is None:
            free = self.num_blocks
        else:
            room = max(0, limit - stats.physical_usage) + stats.cached_pages * stats.page_size
            free += room // frame * stats.blocks_per_frame
        return min(free, self.num_blocks - stats.live_blocks) + len(self.reserved_blocks)

    def get_mapped_memory_size(self, unit: str = "bytes") -> float:
        """The memory behind blocks, in bytes, kb, mb or gb."""
        if unit not in _UNITS:
            raise errors.InvalidArgument(f"a unit is one of {', '.join(_UNITS)}, not {unit!r}")
        stats = self.cache.stats()
        return stats.used_pages * stats.page_size / _UNITS[unit]

    def close(self) -> None:
        """Give everything back."""
        self.cache.close()

    def __enter__(self) -> KVCacheManager:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
