"""Owns: the resource stack of a worker: built from a declaration, asked to give back, taken down.

Must not know: engines; they bring the node, the names, and who can make room.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tensormem._core import TenantBudget, TenantBudgets
from tensormem.closable import Closable
from tensormem.distributed.budget import NodeBudget
from tensormem.distributed.cluster_node import Node
from tensormem.distributed.declaration import Declaration, PoolKind
from tensormem.distributed.received import Received
from tensormem.distributed.worker_stats import WorkerStats
from tensormem.errors import NodeOutOfMemory, TenantInUse
from tensormem.mr import (
    DeviceMemoryResource,
    ElasticMemoryResource,
    FailureCallbackResourceAdaptor,
    LimitingResourceAdaptor,
    PoolMemoryResource,
    StatisticsResourceAdaptor,
    TrackingResourceAdaptor,
)
from tensormem.pools import SharedBudget

__all__ = ["WorkerStack"]

Evictor = Callable[[int], object]
_log = logging.getLogger(__name__)
_lock = threading.RLock()


class WorkerStack(Closable):
    """The resources of one worker. `resource` is the top; `on_pressure` adds somebody who can make room.

    >>> from tensormem.distributed import Declaration, Node
    >>> stack = WorkerStack(Declaration(budget="64MiB", limit="8MiB"), Node.here("docs", "stack"), "worker-1")
    >>> block = stack.resource.allocate("4MiB")
    >>> stack.stats().used, stack.stats().budget
    (4194304, 67108864)
    >>> stack.resource.deallocate(block)
    >>> stack.close()
    """

    def __init__(self, declaration: Declaration, node: Node, worker: str) -> None:
        self.declaration, self.node, self.worker = declaration, node, worker
        self._evictors: list[tuple[Evictor, Callable[[], int] | None]] = []
        self._evicting = threading.Lock()
        self._evicted = self._refusals = self._times_asked = 0
        self.users = 1
        self.budget = NodeBudget(
            node, declaration, worker, _weakly(self._said), _weakly(self._asked), _weakly(self._asked_for_idle)
        )
        try:
            self._build()
        except BaseException:
            self.budget.close()
            raise

    def _build(self) -> None:
        declared = self.declaration
        # Where none was declared, one without a limit counts.
        counting = self.budget.shared or TenantBudgets(sys.maxsize).register()
        self._counting: SharedBudget | TenantBudget = counting
        self._pages = ElasticMemoryResource(declared.device, budget=counting, release_threshold=int(declared.keep))
        self._pool = PoolMemoryResource(self._pages) if declared.pool is PoolKind.POOL else None
        top: DeviceMemoryResource = self._pages if self._pool is None else self._pool
        self._limiting = None
        if declared.limit_bytes is not None:
            top = self._limiting = LimitingResourceAdaptor(top, declared.limit_bytes)
        self.received = Received(counting, self._limiting, _weakly(self._refused))
        top = FailureCallbackResourceAdaptor(top, _weakly(self._refused))
        self._statistics = StatisticsResourceAdaptor(top) if declared.statistics else None
        top = top if self._statistics is None else self._statistics
        self._tracking = TrackingResourceAdaptor(top) if declared.tags else None
        self.resource: DeviceMemoryResource = top if self._tracking is None else self._tracking

    # --- Pressure ---

    def on_pressure(self, evictor: Evictor, spilled: Callable[[], int] | None = None) -> Evictor:
        """Call `evictor(wanted)` when bytes are wanted back, after those who came before; usable as a decorator.

        It runs in a thread of its own when another worker needs memory, and in the allocating one when this worker
        does. It lets go of what it can do without; the pages go back by themselves. `spilled()` says how many bytes it
        keeps elsewhere.
        """
        with _lock:
            self._evictors.append((evictor, spilled))
        return evictor

    def forget(self, evictor: Evictor) -> None:
        """Ask `evictor` no more."""
        with _lock:
            self._evictors = [each for each in self._evictors if each[0] != evictor]

    def relieve(self, wanted: int) -> int:
        """Give back idle pages, and let everybody make room until `wanted` bytes have gone; says how many went."""
        before = self._counting.used
        self.trim()
        for evictor, _ in list(self._evictors):
            missing = wanted - (before - self._counting.used)
            if missing <= 0:
                break
            try:
                evictor(missing)
            except Exception:
                _log.exception("%r could not make room; the next one is asked", evictor)
            self.trim()
        gone = max(before - self._counting.used, 0)
        with _lock:
            self._evicted += gone
        return gone

    def trim(self) -> int:
        """Give back pages that hold nothing; says how many bytes went."""
        if self._pool is not None:
            self._pool.trim()
        return self._pages.trim()

    def _said(self) -> dict[str, Any]:
        return self.stats().as_dict()

    def _asked(self, wanted: int) -> None:
        with _lock:
            self._times_asked += 1
        self.relieve(wanted)

    def _asked_for_idle(self, wanted: int) -> None:
        # The pages have given theirs by themselves; a pool on top keeps some that they do not know of.
        if self._pool is not None:
            self.trim()

    def _refused(self, nbytes: int) -> bool:
        # True: try again. Every round has given something back, so it ends.
        if self._could_ever_fit(nbytes) and self._evicting.acquire(blocking=False):
            try:
                if self.relieve(nbytes) > 0:
                    return True
            finally:
                self._evicting.release()
        with _lock:
            self._refusals += 1
        raise self._refusal(nbytes)

    def _could_ever_fit(self, nbytes: int) -> bool:
        declared = self.declaration
        limits = (declared.limit_bytes, declared.budget_bytes, declared.job_budget_bytes)
        return all(limit is None or nbytes <= limit for limit in limits)

    def _refusal(self, nbytes: int) -> NodeOutOfMemory:
        shared, limit = self.budget.shared, self.declaration.limit_bytes
        free, others = 0, ""
        if shared is not None:
            free = max(shared.limit - shared.used_by_all, 0)
            rest = sorted(shared.participants(), key=lambda each: -each.used)
            others = "; the node's workers use " + ", ".join(f"{each.name}: {each.used:,}" for each in rest[:8])
        room = free if shared is not None else sys.maxsize
        if shared is not None and shared.job_limit is not None:
            room = min(room, max(shared.job_limit - sum(each.used for each in rest if each.job == shared.job), 0))
            others = f", that of its job {shared.job} {shared.job_limit:,}{others}"
        if limit is not None and self._limiting is not None:
            room = min(room, self._limiting.remaining)
        why = f"its own limit is {limit:,}" if limit is not None else "it has no limit of its own"
        room = 0 if room == sys.maxsize else room
        return NodeOutOfMemory(
            nbytes, free, room, f"{self.worker} (pid {os.getpid()})", str(self.node), what=why + others
        )

    # --- What it has ---

    @property
    def live_bytes(self) -> int:
        """What blocks asked for, and what was received and counts."""
        return self.resource.bytes_outstanding + self.received.nbytes

    def stats(self) -> WorkerStats:
        """What this worker has now."""
        shared = self.budget.shared
        return WorkerStats(
            engine=self.node.engine,
            node=self.node.name,
            worker=self.worker,
            pid=os.getpid(),
            host=self.node.host,
            used=self._counting.used,
            live=self.live_bytes,
            idle=self._pages.idle_bytes,
            peak=self._counting.peak,
            received=self.received.nbytes,
            owed=self.received.owed,
            budget=None if shared is None else shared.limit,
            limit=self.declaration.limit_bytes,
            guaranteed=self.declaration.guaranteed_bytes,
            job=self.declaration.job or "",
            job_budget=self.declaration.job_budget_bytes,
            fragmentation=self._pages.fragmentation,
            spilled=sum(spilled() for _, spilled in list(self._evictors) if spilled is not None),
            evicted=self._evicted,
            times_asked=self._times_asked,
            refusals=self._refusals,
            tags={} if self._tracking is None else _bytes_by_tag(self._tracking),
        )

    # --- The end ---

    def close(self, *, force: bool = False) -> None:
        """Leave the node. `TenantInUse` while blocks are out, and nothing has changed; by `force` they live on, and
        count until they go.
        """
        self.trim()
        live = self.live_bytes
        if live and not force:
            raise TenantInUse(self.worker, live)
        if live:
            self.budget.abandon()
        else:
            self.budget.close()

    def __repr__(self) -> str:
        return f"<WorkerStack of {self.worker} on {self.node}>"


def _bytes_by_tag(tracking: TrackingResourceAdaptor) -> dict[str, int]:
    return {str(tag or "untagged"): _first(total) for tag, total in tracking.totals_by_tag().items()}


def _first(total: Any) -> int:
    return int(total[0] if isinstance(total, tuple) else total)


def _weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, without keeping its object: what it is given to belongs to that object."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        found = reference()
        return None if found is None else found(*arguments)

    return call
