"""Owns: three ways to keep the KV caches of several models in one budget of real memory.

Must not know: the trace, the clock, how results are shown.
"""

from collections.abc import Sequence
from typing import Protocol

import tensormem as tm
from kv_serving.models import MODELS, blocks_for
from tensormem.errors import OutOfPhysicalMemory
from tensormem.pools import PhysicalLimit

ADDRESSES = "64GiB"
PAGE_BYTES = 2 << 20


class Lease:
    """What one request has: its model, and the numbers of its blocks (or of its one slot)."""

    def __init__(self, model: int, blocks: Sequence[int]) -> None:
        self.model = model
        self.blocks = list(blocks)


class Fleet(Protocol):
    """The caches of all models."""

    name: str

    def admit(self, model: int, tokens: int) -> Lease | None:
        """Room for the context of a request, or None."""

    def grow(self, lease: Lease, tokens: int) -> bool:
        """Room for so many tokens in all, or False."""

    def end(self, lease: Lease) -> None:
        """The request is over."""

    def physical_bytes(self) -> list[int]:
        """The memory of each model, now."""

    def close(self) -> None:
        """Give everything back."""


class _FixedParts:
    """An equal part of the budget for each model, taken at the start and kept."""

    def __init__(self, budget_bytes: int) -> None:
        self.part_bytes = budget_bytes // len(MODELS) // PAGE_BYTES * PAGE_BYTES
        self._pools = [tm.VirtualMemoryPool(self.part_bytes, PAGE_BYTES) for _ in MODELS]
        for pool in self._pools:
            pool.allocate(0, self.part_bytes)

    def physical_bytes(self) -> list[int]:
        return [pool.physical_memory_usage for pool in self._pools]

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


class StaticFleet(_FixedParts):
    """Each request reserves room for the longest one that may come."""

    name = "static"

    def __init__(self, budget_bytes: int, longest: int) -> None:
        super().__init__(budget_bytes)
        slots = [self.part_bytes // (blocks_for(longest) * model.block_bytes) for model in MODELS]
        self._free = [list(range(count)) for count in slots]

    def admit(self, model: int, tokens: int) -> Lease | None:
        return Lease(model, [self._free[model].pop()]) if self._free[model] else None

    def grow(self, lease: Lease, tokens: int) -> bool:
        return True

    def end(self, lease: Lease) -> None:
        self._free[lease.model] += lease.blocks


class FixedBlocksFleet(_FixedParts):
    """Blocks of one size for all models, large enough for the largest, in a fixed pool for each."""

    name = "fixed blocks"

    def __init__(self, budget_bytes: int) -> None:
        super().__init__(budget_bytes)
        block_bytes = max(model.block_bytes for model in MODELS)
        self._free = [list(range(self.part_bytes // block_bytes)) for _ in MODELS]

    def _take(self, model: int, count: int) -> list[int] | None:
        free = self._free[model]
        if len(free) < count:
            return None
        taken = free[len(free) - count :]
        del free[len(free) - count :]
        return taken

    def admit(self, model: int, tokens: int) -> Lease | None:
        blocks = self._take(model, blocks_for(tokens))
        return None if blocks is None else Lease(model, blocks)

    def grow(self, lease: Lease, tokens: int) -> bool:
        more = self._take(lease.model, max(0, blocks_for(tokens) - len(lease.blocks)))
        lease.blocks += more or []
        return more is not None

    def end(self, lease: Lease) -> None:
        self._free[lease.model] += lease.blocks


class ElasticFleet:
    """A block cache for each model, blocks of its own size, one budget: what one does not use, another can."""

    name = "tensormem"

    def __init__(self, budget_bytes: int) -> None:
        limit = PhysicalLimit(budget_bytes)
        self._caches = [
            tm.BlockCache(ADDRESSES, model.block_bytes, PAGE_BYTES, budget=limit, release_threshold="128MiB")
            for model in MODELS
        ]

    def _allocate(self, model: int, count: int) -> Sequence[int] | None:
        try:
            return self._caches[model].allocate(count, tag=MODELS[model].name)
        except OutOfPhysicalMemory as refused:
            if not self._make_room(model, refused.requested - refused.available):
                return None
        try:
            return self._caches[model].allocate(count, tag=MODELS[model].name)
        except OutOfPhysicalMemory:
            return None

    def _make_room(self, model: int, nbytes: int) -> bool:
        """Packs the other models until they have given back so much."""
        for other in self._caches:
            stats = other.stats()
            if other is self._caches[model] or stats.physical_usage == stats.floor_pages * PAGE_BYTES:
                continue
            other.compact()
            nbytes -= other.trim(max(0, other.stats().cached_pages * PAGE_BYTES - nbytes))
            if nbytes <= 0:
                return True
        return False

    def admit(self, model: int, tokens: int) -> Lease | None:
        blocks = self._allocate(model, blocks_for(tokens))
        return None if blocks is None else Lease(model, blocks)

    def grow(self, lease: Lease, tokens: int) -> bool:
        more = self._allocate(lease.model, max(0, blocks_for(tokens) - len(lease.blocks)))
        lease.blocks += more or []
        return more is not None

    def end(self, lease: Lease) -> None:
        self._caches[lease.model].deallocate(lease.blocks)

    def physical_bytes(self) -> list[int]:
        return [cache.physical_memory_usage for cache in self._caches]

    def close(self) -> None:
        for cache in self._caches:
            cache.close()
