"""Owns: memory that an engine made and a worker keeps, such as what came over a connection: it counts in the budget of
the worker from when there is room for it until it goes.

Nothing is refused on arrival: an engine whose message cannot be unpacked loses its way. What finds no room is owed, and
whoever wants to use it pays first. Must not know: engines, how bytes travel.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from tensormem._core import TenantBudget
from tensormem.mr import BudgetReservation, LimitingResourceAdaptor
from tensormem.pools import SharedBudget

__all__ = ["Received", "ReceivedMemory"]


class ReceivedMemory:
    """The owner of memory that was received: it keeps the memory, and its part of the budget, until `release`.

    >>> from tensormem.distributed import Declaration, Node, WorkerStack
    >>> stack = WorkerStack(Declaration(budget="8MiB"), Node.here("docs", "received"), "worker-1")
    >>> kept = stack.received.take_in(bytearray(1000), 1000)
    >>> kept.owed, stack.stats().used
    (0, 1000)
    >>> kept.release()
    >>> stack.stats().used
    0
    >>> stack.close()
    """

    def __init__(self, account: Received, memory: object, nbytes: int) -> None:
        self.nbytes = nbytes
        self._account, self._memory = account, memory
        self._claim: _Claim | None = None
        self._released = False
        # A collection of garbage may release it in the middle of a payment, in the same thread.
        self._lock = threading.RLock()

    @property
    def owed(self) -> int:
        """The bytes that do not count yet: all of them, or 0."""
        return self.nbytes if self._claim is None and not self._released else 0

    def pay(self, *, wait: bool = True) -> None:
        """Let it count from now on. Others are asked to make room, and waited for; what is then refused is the error of
        an allocation, `NodeOutOfMemory`, and it stays owed. Without `wait` it may stay so silently.
        """
        with self._lock:
            if self.owed:
                self._claim = self._account.claim(self.nbytes) if wait else self._account.claim_if_free(self.nbytes)
            if self._released:
                self._give_back()

    def release(self) -> None:
        """The memory has gone, and does not count any more. Once or many times."""
        with self._lock:
            self._released = True
            self._give_back()

    def _give_back(self) -> None:
        claim, self._claim, self._memory = self._claim, None, None
        if claim is not None:
            claim.close()


class _Claim:
    """Bytes of a budget, and of a worker's own limit where there is one."""

    def __init__(
        self, budget: SharedBudget | TenantBudget, limiting: LimitingResourceAdaptor | None, nbytes: int
    ) -> None:
        self._budget, self._nbytes = budget, nbytes
        self._reservation: BudgetReservation | None = None if limiting is None else limiting.reserve(nbytes)
        try:
            budget.claim(nbytes)
        except BaseException:
            self._let_go()
            raise

    def close(self) -> None:
        self._budget.give_back(self._nbytes)
        self._let_go()

    def _let_go(self) -> None:
        if self._reservation is not None:
            self._reservation.close()


class Received:
    """All memory that a worker received and keeps.

    `refused(nbytes)` is called when there is no room: it makes some and says True, or raises.

    >>> from tensormem.pools import SharedBudget
    >>> with SharedBudget.create("4KiB") as budget:
    ...     received = Received(budget, None, lambda nbytes: False)
    ...     first, second = received.take_in(bytearray(4000), 4000), received.take_in(bytearray(1000), 1000)
    ...     received.nbytes, received.owed
    ...     first.release()
    (4000, 1000)
    """

    def __init__(
        self,
        budget: SharedBudget | TenantBudget,
        limiting: LimitingResourceAdaptor | None,
        refused: Callable[[int], bool | None],
    ) -> None:
        self._budget, self._limiting, self._refused = budget, limiting, refused
        self._came_owed: weakref.WeakSet[ReceivedMemory] = weakref.WeakSet()

    @property
    def nbytes(self) -> int:
        """The bytes that count."""
        return self._budget.claimed

    @property
    def owed(self) -> int:
        """The bytes that do not: when they came there was no room."""
        return sum(each.owed for each in list(self._came_owed))

    def take_in(self, memory: object, nbytes: int) -> ReceivedMemory:
        """The owner of `nbytes` that `memory` keeps. They count if there is room now, else they are owed."""
        made = ReceivedMemory(self, memory, nbytes)
        made.pay(wait=False)
        if made.owed:
            self._came_owed.add(made)
        return made

    def claim(self, nbytes: int) -> _Claim:
        """As an allocation would get them."""
        while True:
            try:
                return _Claim(self._budget, self._limiting, nbytes)
            except MemoryError:
                if not self._refused(nbytes):
                    raise

    def claim_if_free(self, nbytes: int) -> _Claim | None:
        """The same if nobody has to be asked, else None: who unpacks a message cannot wait."""
        shared = self._budget
        if isinstance(shared, SharedBudget) and shared.limit - shared.used_by_all < nbytes:
            return None
        try:
            return _Claim(shared, self._limiting, nbytes)
        except MemoryError:
            return None
