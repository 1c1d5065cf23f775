"""Owns: many models under one physical limit: who is registered, and what all of them have.

Must not know: how memory is divided; the budget does that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

from tensormem import errors
from tensormem._core import Budget, PoolBlock, Stream, TenantBudgets
from tensormem.construction import constructed_once
from tensormem.pools.living import remember
from tensormem.pools.tenant import Tenant, TenantStats
from tensormem.units import format_size
from tensormem.vmm.manager import find_mapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["TenantPool", "TenantPoolStats"]


class TenantPoolStats(NamedTuple):
    """What all tenants have at one moment.

    >>> from tensormem.pools import TenantPool
    >>> with TenantPool("64MiB") as models:
    ...     models.stats().physical_usage
    0
    """

    physical_limit: int
    physical_usage: int
    """Exactly what the tenants have together, those included that were unregistered and still have something."""
    peak_physical_usage: int
    guaranteed: int
    refusals: int
    times_asked: int
    tenants: dict[str, TenantStats]


@constructed_once
class TenantPool:
    """Many models, one physical limit. Each has a range of addresses of its own and many live allocations in it.

    A tenant never has more than its `maximum`. What others are `guaranteed` and do not use yet stays free for them.
    Otherwise who comes first is served first. When there is no room, first the idle pages of all tenants are given
    back; then those above their fair share are asked through `on_pressure(wanted)` to deallocate: lowest `priority`
    first, then who is furthest above it. The fair share is what is guaranteed, and of the rest a part weighted by
    priority. If somebody gave nothing back, lower priorities stand in for it, down to their guarantees. Only then
    `OutOfPhysicalMemory` is raised.

    With a `budget`, everything the tenants have also counts there. With a `SharedBudget` the tenants of several
    processes so share one limit; give it `on_pressure=lambda wanted: models.relieve(wanted)`, and other processes'
    needs reach the tenants here.

    Callbacks run in the thread that needs the memory, without any lock; they may allocate and deallocate, and ask
    nobody by that. What one raises goes to `sys.unraisablehook`, and the next tenant is asked.

    >>> from tensormem.pools import TenantPool
    >>> with TenantPool("8MiB") as models:
    ...     cache = []
    ...     def make_room(wanted):
    ...         while wanted > 0:
    ...             wanted -= cache[0].size
    ...             models.deallocate("chat", cache.pop(0))
    ...     chat = models.register("chat", "1GiB", on_pressure=make_room)
    ...     cache += [chat.allocate("2MiB") for _ in range(4)]
    ...     code = models.register("code", "1GiB", priority=3)
    ...     block = code.allocate("4MiB")
    ...     chat.physical_memory_usage >> 20, code.physical_memory_usage >> 20
    (4, 4)
    """

    def __init__(
        self,
        physical_limit: int | str | None = None,
        page_size: int | str = "2MiB",
        device: WhereLike = "main",
        *,
        budget: Budget | None = None,
    ) -> None:
        if physical_limit is None:
            if budget is None:
                raise errors.InvalidArgument("give a physical limit, or a budget that has one")
            physical_limit = budget.limit
        self._device = find_mapped(device)
        self._budgets = TenantBudgets(physical_limit, budget, self._device.driver, self._device.ordinal)
        self._page_size = page_size
        self._lock = threading.Lock()  # never held while a callback runs
        self._tenants: dict[str, Tenant] = {}
        self._closed = False
        remember(self)

    # --- Who is here ---

    def register(
        self,
        name: str,
        capacity: int | str,
        *,
        guaranteed: int | str = 0,
        maximum: int | str | None = None,
        priority: int = 1,
        on_pressure: Callable[[int], object] | None = None,
    ) -> Tenant:
        """A new tenant with `capacity` bytes of addresses. `OutOfPhysicalMemory` when there is not as much left to
        guarantee.
        """
        if not isinstance(name, str):
            raise errors.InvalidArgument(f"a tenant's name is text, not {type(name).__name__}")
        with self._lock:
            self._check_open()
            if name in self._tenants:
                raise errors.TenantAlreadyExists(name)
            tenant = Tenant(
                self._budgets,
                name,
                capacity,
                page_size=self._page_size,
                device=self._device,
                guaranteed=guaranteed,
                maximum=maximum,
                priority=priority,
                on_pressure=on_pressure,
            )
            self._tenants[name] = tenant
            return tenant

    def unregister(self, name: str, *, force: bool = False) -> None:
        """Take down a tenant. `TenantInUse` while it has live memory, unless by `force`: then its memory is gone, and
        its blocks are dead. No other thread may allocate for it meanwhile.
        """
        tenant = self[name]
        tenant.close(force=force)
        with self._lock:
            if self._tenants.get(name) is tenant:
                del self._tenants[name]

    def __getitem__(self, name: str) -> Tenant:
        try:
            return self._tenants[name]
        except KeyError:
            raise errors.TenantNotFound(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._tenants

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._tenants))

    def __len__(self) -> int:
        return len(self._tenants)

    # --- Memory of a tenant by its name ---

    def allocate(self, name: str, size: int | str, *, alignment: int = 256, tag: str | None = None) -> PoolBlock:
        """A block for the tenant `name`, wherever its pool finds room."""
        return self[name].allocate(size, alignment=alignment, tag=tag)

    def allocate_at(self, name: str, offset: int | str, size: int | str) -> int:
        """Memory for the tenant `name` at an offset of its range, in whole pages; gives the address."""
        return self[name].allocate_at(offset, size)

    def deallocate(
        self,
        name: str,
        offset: int | str | PoolBlock,
        size: int | str | None = None,
        stream: Stream | None = None,
    ) -> None:
        """Give back a block of the tenant `name`, or whole pages at an offset."""
        self[name].deallocate(offset, size, stream)

    # --- All of them ---

    @property
    def physical_limit(self) -> int:
        """What all tenants may have together, in bytes. It can change at any time, but not below what is guaranteed.

        Lowered below what is used, tenants are asked to give back; until they have, nobody gets more than its
        guarantee.
        """
        return self._budgets.limit

    @physical_limit.setter
    def physical_limit(self, limit: int | str) -> None:
        self._check_open()
        self._budgets.limit = limit

    @property
    def physical_memory_usage(self) -> int:
        """What all tenants have together, to the byte."""
        return self._budgets.used

    def relieve(self, nbytes: int | str) -> int:
        """Ask tenants, in the usual order, to give back `nbytes` of what they have beyond their guarantees; says how
        many bytes came back.
        """
        self._check_open()
        return self._budgets.relieve(nbytes)

    def trim(self) -> int:
        """Give back the pages that all tenants keep for reuse; says how many bytes went."""
        return sum(tenant.trim() for tenant in list(self._tenants.values()))

    def stats(self) -> TenantPoolStats:
        """What everybody has now."""
        budgets = self._budgets
        return TenantPoolStats(
            budgets.limit,
            budgets.used,
            budgets.peak,
            budgets.guaranteed,
            budgets.refusals,
            budgets.times_asked,
            {name: tenant.stats() for name, tenant in list(self._tenants.items())},
        )

    # --- The end ---

    @property
    def closed(self) -> bool:
        """Whether it takes no more tenants."""
        return self._closed

    def close(self) -> None:
        """Unregister everybody, by force. Once or many times.

        Goes as far as it can: what a tenant refuses, such as `StillHeld` while a view of its memory is in use, is
        raised at the end. Then the pool is open, with the tenants that are left, and the next `close` tries again.
        """
        with self._lock:
            self._closed = True  # nobody new meanwhile
        refused: list[BaseException] = []
        for name in self:
            try:
                self.unregister(name, force=True)
            except errors.TenantNotFound:  # somebody else was faster
                continue
            except BaseException as error:
                refused.append(error)
        if refused:
            with self._lock:
                self._closed = False
            raise refused[0]

    def _check_open(self) -> None:
        if self._closed:
            raise errors.UseAfterRelease(0, what="the tenant pool was closed")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return "<TenantPool, closed>"
        used, limit = format_size(self.physical_memory_usage), format_size(self.physical_limit)
        return f"<TenantPool of {len(self)} tenants: {used} of {limit}>"
