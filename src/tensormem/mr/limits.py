"""Owns: which limits are in force now, in this thread or task and in the whole process.

A limit is charged through a `LimitingResourceAdaptor` on top of whatever serves memory inside. Must not know: which
resource serves what.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tensormem._core import AllocationLimit, Budget, space_of
from tensormem.mr.resources import DeviceMemoryResource, LimitingResourceAdaptor

__all__ = ["apply", "budgets_of", "in_force", "in_process", "of_space"]

_Scope = tuple[AllocationLimit, str | None]  # and the space it is for; None: all of them

_here: ContextVar[tuple[_Scope, ...]] = ContextVar("tensormem.mr.limits", default=())
_lock = threading.Lock()
_everywhere: tuple[_Scope, ...] = ()


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
