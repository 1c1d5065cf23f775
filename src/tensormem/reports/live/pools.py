"""Owns: the figures of elastic pools, block caches, growable buffers, tenants, and the budgets they draw on.

Must not know: resources, except that an elastic one has a budget too.
"""

from __future__ import annotations

from typing import NamedTuple

from tensormem._core import Driver, GrowableBuffer, VirtualMemoryManager, host_driver
from tensormem.errors import TensormemError
from tensormem.pools import BlockCache, Budget, SharedBudget, TenantPool, TenantStats, VirtualMemoryPool
from tensormem.pools.living import living
from tensormem.spaces import LogicalMemorySpace, gpu, main

__all__ = [
    "BudgetFigures",
    "PoolFigures",
    "TenantFigures",
    "devices_of_pools",
    "look_at_budgets",
    "look_at_pools",
    "look_at_tenants",
]

_LONGEST_NAME = 80


class PoolFigures(NamedTuple):
    """One elastic pool, block cache or growable buffer at one moment. What its kind does not know is None.

    >>> import tensormem as tm
    >>> with tm.VirtualMemoryPool("1GiB") as pool:
    ...     block = pool.allocate(size="3MiB")
    ...     figures = look_at_pools()[-1]
    ...     figures.used_bytes, figures.reserved_bytes
    (3145728, 4194304)
    """

    id: int
    name: str
    """Its class, with the tenant it belongs to."""
    space: str
    used_bytes: int
    used_blocks: int
    reserved_bytes: int
    """The memory of its pages, those that are kept for reuse included."""
    peak_bytes: int
    """The most it had reserved."""
    idle_bytes: int
    """Pages kept for reuse."""
    suspended_bytes: int
    capacity_bytes: int
    """Its addresses."""
    largest_free_bytes: int | None
    """The longest run of free addresses."""
    fragmentation: float
    limit_bytes: int | None
    total_allocations: int | None


class TenantFigures(NamedTuple):
    """One tenant of a `TenantPool` at one moment.

    >>> import tensormem as tm
    >>> with tm.TenantPool("64MiB") as models:
    ...     chat = models.register("chat", "1GiB", maximum="16MiB")
    ...     look_at_tenants()[-1].maximum_bytes
    16777216
    """

    pool: int
    """The id of its `TenantPool` among the budgets."""
    name: str
    used_bytes: int
    peak_bytes: int
    guaranteed_bytes: int
    maximum_bytes: int | None
    priority: int
    refusals: int
    times_asked: int


class BudgetFigures(NamedTuple):
    """One limit that several share: a `TenantPool`, or a `SharedBudget` between processes.

    >>> import tensormem as tm
    >>> with tm.TenantPool("64MiB") as models:
    ...     look_at_budgets()[-1].limit_bytes
    67108864
    """

    id: int
    name: str
    limit_bytes: int
    used_bytes: int
    """By everybody, other processes included."""
    members: int


def look_at_pools() -> list[PoolFigures]:
    """Every elastic pool, block cache and growable buffer that is open, and managers with pages made by hand."""
    owners = _owners()
    listed = [
        figures
        for number, pool in living()
        if isinstance(pool, VirtualMemoryPool | BlockCache | GrowableBuffer)
        and (figures := _pool_figures(number, pool, owners.get(id(pool)))) is not None
    ]
    managers = [(number, each) for number, each in living() if isinstance(each, VirtualMemoryManager)]
    return listed + [figures for number, manager in managers for figures in _pages_by_hand(number, manager)]


def look_at_tenants() -> list[TenantFigures]:
    """Every tenant of every open tenant pool."""
    return [
        TenantFigures(
            number,
            name[:_LONGEST_NAME],
            stats.physical_usage,
            stats.peak_physical_usage,
            stats.guaranteed,
            stats.maximum,
            stats.priority,
            stats.refusals,
            stats.times_asked,
        )
        for number, pool in _tenant_pools()
        for name, stats in _tenants_of(pool).items()
    ]


def look_at_budgets() -> list[BudgetFigures]:
    """Every open tenant pool, and every shared budget that a living pool draws on."""
    found = [
        BudgetFigures(number, "TenantPool", pool.physical_limit, pool.physical_memory_usage, len(pool))
        for number, pool in _tenant_pools()
    ]
    shared = {id(budget): (number, budget) for number, budget in _shared_budgets()}
    for number, budget in shared.values():
        try:
            members = budget.participants()
            found.append(BudgetFigures(number, "SharedBudget", budget.limit, budget.used_by_all, len(members)))
        except TensormemError:  # closed meanwhile
            continue
    return found


def devices_of_pools() -> list[tuple[Driver, int]]:
    """The drivers and devices that open pools are on."""
    pools = [pool for _, pool in living()]
    found = [
        (each.driver, each.device)
        for each in pools
        if isinstance(each, VirtualMemoryPool | BlockCache) and not each.closed
    ]
    buffers = any(isinstance(each, GrowableBuffer) and not each.closed for each in pools)
    return found + ([(host_driver(), 0)] if buffers else [])


def _tenant_pools() -> list[tuple[int, TenantPool]]:
    return [(number, pool) for number, pool in living() if isinstance(pool, TenantPool) and not pool.closed]


def _tenants_of(pool: TenantPool) -> dict[str, TenantStats]:
    try:
        return pool.stats().tenants
    except TensormemError:  # one is being unregistered
        return {}


def _owners() -> dict[int, str]:
    """The tenant that each pool belongs to."""
    return {
        id(tenant.pool): name
        for _, pool in _tenant_pools()
        for name in pool
        if (tenant := pool._tenants.get(name)) is not None and not tenant.closed
    }


def _shared_budgets() -> list[tuple[int, SharedBudget]]:
    budgets = [(number, getattr(pool, "budget", None)) for number, pool in living()]
    budgets += [(number, pool._budgets.budget) for number, pool in _tenant_pools()]
    return [(number, budget) for number, budget in budgets if isinstance(budget, SharedBudget) and not budget.closed]


def _pool_figures(
    number: int, pool: VirtualMemoryPool | BlockCache | GrowableBuffer, owner: str | None
) -> PoolFigures | None:
    try:
        if isinstance(pool, GrowableBuffer):
            return _buffer(number, pool)
        return _elastic(number, pool, owner) if isinstance(pool, VirtualMemoryPool) else _cache(number, pool)
    except TensormemError:  # closed meanwhile
        return None


def _elastic(number: int, pool: VirtualMemoryPool, owner: str | None) -> PoolFigures:
    stats = pool.stats()
    return PoolFigures(
        id=number,
        name=type(pool).__name__ + (f" of {owner[:_LONGEST_NAME]}" if owner else ""),
        space=str(LogicalMemorySpace.parse(pool.driver)),
        used_bytes=stats.live_bytes,
        used_blocks=stats.live_blocks,
        reserved_bytes=stats.physical_usage,
        peak_bytes=stats.peak_physical_usage,
        idle_bytes=stats.cached_pages * stats.page_size,
        suspended_bytes=stats.suspended_bytes,
        capacity_bytes=stats.virtual_capacity,
        largest_free_bytes=stats.largest_free,
        fragmentation=stats.fragmentation,
        limit_bytes=_limit(pool.budget, pool.physical_limit),
        total_allocations=None,
    )


def _cache(number: int, cache: BlockCache) -> PoolFigures:
    stats = cache.stats()
    return PoolFigures(
        id=number,
        name=type(cache).__name__,
        space=str(LogicalMemorySpace.parse(cache.driver)),
        used_bytes=stats.live_bytes,
        used_blocks=stats.live_blocks,
        reserved_bytes=stats.physical_usage,
        peak_bytes=stats.peak_physical_usage,
        idle_bytes=stats.cached_pages * stats.page_size,
        suspended_bytes=0,
        capacity_bytes=stats.capacity_blocks * stats.block_size,
        largest_free_bytes=None,
        fragmentation=stats.fragmentation,
        limit_bytes=_limit(cache.budget, cache.physical_limit),
        total_allocations=stats.total_allocated,
    )


def _buffer(number: int, buffer: GrowableBuffer) -> PoolFigures:
    return PoolFigures(
        id=number,
        name=type(buffer).__name__,
        space="main",
        used_bytes=buffer.nbytes,
        used_blocks=1 if buffer.nbytes else 0,
        reserved_bytes=buffer.capacity,
        peak_bytes=buffer.peak,
        idle_bytes=0,
        suspended_bytes=0,
        capacity_bytes=buffer.max_size,
        largest_free_bytes=None,
        fragmentation=0.0,
        limit_bytes=_limit(buffer.budget, None),
        total_allocations=None,
    )


def _pages_by_hand(number: int, manager: VirtualMemoryManager) -> list[PoolFigures]:
    """The pages that `alloc_physical` made, device by device."""
    space = LogicalMemorySpace.parse(manager.driver)
    return [
        PoolFigures(
            id=number,
            name=type(manager).__name__,
            space=str(space if space == main else gpu(device)),
            used_bytes=nbytes,
            used_blocks=1,
            reserved_bytes=nbytes,
            peak_bytes=nbytes,
            idle_bytes=0,
            suspended_bytes=0,
            capacity_bytes=nbytes,
            largest_free_bytes=None,
            fragmentation=0.0,
            limit_bytes=None,
            total_allocations=None,
        )
        for device, nbytes in manager._charged_bytes().items()
        if nbytes
    ]


def _limit(budget: Budget | None, own: int | None) -> int | None:
    return budget.limit if own is None and budget is not None else own
