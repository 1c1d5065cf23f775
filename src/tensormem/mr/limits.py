"""Owns: `limit`, a scope in which all memory counts, of every kind, and which limits are in force now.

A limit is charged through a `LimitingResourceAdaptor` on top of whatever serves memory inside. Must not know: which
resource serves what.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Self, SupportsIndex

from tensormem._core import AllocationLimit, Budget, space_of
from tensormem.mr.resources import DeviceMemoryResource, LimitingResourceAdaptor
from tensormem.spaces import LogicalMemorySpace

__all__ = ["apply", "budgets_of", "in_force", "in_process", "limit", "of_space"]

_Scope = tuple[AllocationLimit, str | None]  # and the space it is for; None: all of them

_here: ContextVar[tuple[_Scope, ...]] = ContextVar("tensormem.mr.limits", default=())
_lock = threading.Lock()
_everywhere: tuple[_Scope, ...] = ()


class limit(AllocationLimit):
    """Inside, memory of every kind that is made without a named resource stays within `nbytes`, in this thread or task.

    Tensors, shared memory, DMA-BUFs, pixel buffers, and the pages of elastic pools, caches and buffers that were made
    inside: all of them count from their beginning to their end, also when that is outside. With `space`, only memory of
    that space. Without `nbytes` nothing is refused: it measures.

    >>> import tensormem as tm
    >>> with tm.limit("1MiB") as limit:
    ...     weights = tm.zeros(1000)
    ...     frame = tm.zeros(500, "uint8", memory="shm")
    ...     limit.used
    4500
    >>> with limit:
    ...     tm.zeros((1024, 1024))
    Traceback (most recent call last):
    ...
    tensormem.errors.OutOfBudget: ...
    """

    def __init__(
        self, nbytes: SupportsIndex | str | None = None, *, space: LogicalMemorySpace | str | None = None
    ) -> None:
        super().__init__(nbytes)
        self.space = None if space is None else LogicalMemorySpace.parse(space)
        self._entered: ContextVar[tuple[ExitStack, ...]] = ContextVar("tensormem.mr.limit.entered", default=())

    def __enter__(self) -> Self:
        from tensormem.mr.current import use_limit  # which stands on this module

        scope = ExitStack()
        scope.enter_context(use_limit(self, None if self.space is None else str(self.space)))
        self._entered.set((*self._entered.get(), scope))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        *before, scope = self._entered.get()
        self._entered.set(tuple(before))
        scope.close()


@contextmanager
def in_force(limit: AllocationLimit, space: str | None) -> Iterator[None]:
    """Inside, the limit is in force in this thread or task."""
    token = _here.set((*_here.get(), (limit, space)))
    try:
        yield
    finally:
        _here.reset(token)


@contextmanager
def in_process(limit: AllocationLimit, space: str | None) -> Iterator[None]:
    """Inside, the limit is in force in the whole process."""
    global _everywhere
    entry = limit, space
    with _lock:
        _everywhere = (*_everywhere, entry)
    try:
        yield
    finally:
        with _lock:
            _everywhere = tuple(each for each in _everywhere if each is not entry)


def of_space(space: str) -> list[AllocationLimit]:
    """The limits in force for memory of a space, the innermost first."""
    scopes = (*_everywhere, *_here.get())
    return [limit for limit, only in reversed(scopes) if only is None or only == space]


def apply(mr: DeviceMemoryResource) -> DeviceMemoryResource:
    """The resource under the limits that are in force for its space; itself where there are none."""
    if not _everywhere and not _here.get():
        return mr
    known = budgets_of(mr)
    for limit in reversed(of_space(space_of(mr))):
        if not any(limit is each for each in known):
            mr = LimitingResourceAdaptor(mr, budget=limit)
    return mr


def budgets_of(mr: DeviceMemoryResource) -> tuple[Budget, ...]:
    """The budgets that a stack charges, the uppermost first."""
    found: list[Budget] = []
    each: DeviceMemoryResource | None = mr
    while each is not None:
        if isinstance(each, LimitingResourceAdaptor):
            found.append(each.budget)
        each = each.upstream_mr
    return tuple(found)
