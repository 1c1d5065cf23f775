"""Owns: one tenant of a `TenantPool`: its pool of addresses, its part of the budget, and what it does when others need
memory.

Must not know: the other tenants.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple

from tensormem import errors
from tensormem._core import Latch, PoolBlock, Stream, TenantBudget, TenantBudgets
from tensormem.construction import constructed_once
from tensormem.pools.virtual_memory_pool import VirtualMemoryPool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["Tenant", "TenantStats"]


_here = threading.local()  # whether this thread is in a callback of a tenant


class TenantStats(NamedTuple):
    """What one tenant has at one moment.

    >>> from tensormem.pools import TenantPool
    >>> with TenantPool("64MiB") as models:
    ...     llama = models.register("llama", "1GiB", guaranteed="16MiB")
    ...     block = llama.allocate(size="3MiB")
    ...     llama.stats().physical_usage, llama.stats().live_bytes
    (4194304, 3145728)
    """

    name: str
    virtual_capacity: int
    physical_usage: int
    """Bytes of the budget it has: mapped pages, cached ones, and what was claimed by hand."""
    peak_physical_usage: int
    live_bytes: int
    live_blocks: int
    guaranteed: int
    maximum: int | None
    priority: int
    refusals: int
    """Claims that found no room in the end."""
    times_asked: int
    """Calls of `on_pressure`."""


@constructed_once
class Tenant:
    """One model among several that share a limit: many live allocations in a range of addresses of its own.

    >>> from tensormem.pools import TenantPool
    >>> with TenantPool("64MiB") as models:
    ...     llama = models.register("llama", "1GiB", guaranteed="16MiB", priority=2)
    ...     weights, cache = llama.allocate(size="4MiB"), llama.allocate(size="2MiB")
    ...     llama.physical_memory_usage
    ...     llama.deallocate(cache)
    6291456
    """

    def __init__(
        self,
        budgets: TenantBudgets,
        name: str,
        capacity: int | str,
        *,
        page_size: int | str,
        device: WhereLike,
        guaranteed: int | str = 0,
        maximum: int | str | None = None,
        priority: int = 1,
        on_pressure: Callable[[int], object] | None = None,
    ) -> None:
        if on_pressure is not None and not callable(on_pressure):
            raise errors.InvalidArgument(f"on_pressure is something to call, not {type(on_pressure).__name__}")
        self.name = name
        self.on_pressure = on_pressure
        self._pool: VirtualMemoryPool | None = None
        self._lock = threading.Lock()
        self._callbacks = 0
        self._quiet = Latch()  # of whoever closes it: opened when no callback of it runs
        self._closing = False
        me = weakref.ref(self)  # the budget must not keep alive what holds it
        self.budget: TenantBudget = budgets.register(
            guaranteed=guaranteed,
            maximum=maximum,
            priority=priority,
            on_pressure=None if on_pressure is None else lambda wanted: _ask(me(), on_pressure, wanted),
        )
        self._pool = VirtualMemoryPool(capacity, page_size, device, budget=self.budget)

    @property
    def pool(self) -> VirtualMemoryPool:
        """Its range of addresses, with everything an elastic pool can do."""
        if self._pool is None:
            raise errors.InvalidArgument("this tenant was not made to its end; TenantPool.register makes one")
        return self._pool

    @property
    def physical_memory_usage(self) -> int:
        """Bytes of the budget it has."""
        return self.budget.used

    @property
    def closed(self) -> bool:
        """Whether it was unregistered."""
        return self._pool is None or self._pool.closed

    def allocate_at(self, offset: int | str, size: int | str) -> int:
        """Memory at an offset of its range, in whole pages; gives the address."""
        return self.pool.allocate(offset, size)

    def allocate(self, size: int | str, *, alignment: int = 256, tag: str | None = None) -> PoolBlock:
        """A block wherever its pool finds room. May ask other tenants to give back."""
        return self.pool.allocate(size=size, alignment=alignment, tag=tag)

    def deallocate(
        self, offset: int | str | PoolBlock, size: int | str | None = None, stream: Stream | None = None
    ) -> None:
        """Give back a block, or whole pages at an offset."""
        if isinstance(offset, PoolBlock):
            if size is not None:
                raise errors.InvalidArgument("a block knows its size: give the block alone")
            self.pool.deallocate(offset, stream=stream)
        elif size is None:
            raise errors.InvalidArgument("say how much: deallocate(offset, size), or deallocate(block)")
        else:
            self.pool.deallocate(offset, size, stream)

    def trim(self) -> int:
        """Give back the pages it keeps for reuse; says how many bytes went."""
        return self.pool.trim()

    def stats(self) -> TenantStats:
        """What it has now."""
        budget, pool = self.budget, self.pool.stats()
        return TenantStats(
            self.name,
            pool.virtual_capacity,
            budget.used,
            budget.peak,
            pool.live_bytes,
            pool.live_blocks,
            budget.guaranteed,
            budget.maximum,
            budget.priority,
            budget.refusals,
            budget.times_asked,
        )

    def close(self, *, force: bool) -> None:
        """For `TenantPool.unregister`: give everything back once no callback runs, or raise and change nothing."""
        quiet = self._start_closing()
        try:
            quiet.wait()
            if not self.closed:
                self.pool.trim()
            if self.budget.used and not force:
                raise errors.TenantInUse(self.name, self.budget.used)
            self.pool.close()
            self.budget.retire()
        except BaseException:
            self._closing = False
            raise

    def _start_closing(self) -> Latch:
        if getattr(_here, "in_callback", False):
            raise errors.InvalidArgument("a pressure callback cannot unregister tenants: others may wait for it")
        with self._lock:
            if self._closing:
                raise errors.TenantNotFound(self.name, what="it is being unregistered")
            self._closing, self._quiet = True, Latch()
            if not self._callbacks:
                self._quiet.open()
            return self._quiet

    def _run(self, callback: Callable[[int], object], wanted: int) -> None:
        """Call it, unless the tenant is going; what it frees goes back with the idle pages of the pool."""
        with self._lock:
            if self._closing or self._pool is None:
                return
            self._callbacks += 1
        _here.in_callback = True
        try:
            callback(wanted)
        finally:
            _here.in_callback = False
            with self._lock:
                self._callbacks -= 1
                if not self._callbacks:
                    self._quiet.open()

    def __repr__(self) -> str:
        return f"<Tenant {self.name!r}, unregistered>" if self.closed else f"<Tenant {self.name!r}: {self.pool!r}>"


def _ask(tenant: Tenant | None, callback: Callable[[int], object], wanted: int) -> None:
    if tenant is not None:
        tenant._run(callback, wanted)
