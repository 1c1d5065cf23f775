"""Owns: `limit`, a scope in which memory of every kind counts.

Must not know: how memory is charged; `tensormem.mr.current` puts the limit over whatever serves memory inside.
"""

from __future__ import annotations

from contextlib import ExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import Self, SupportsIndex

from tensormem._core import AllocationLimit
from tensormem.errors import InvalidArgument
from tensormem.mr.current import use_limit
from tensormem.spaces import LogicalMemorySpace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.spaces.words import SpaceLike

__all__ = ["limit"]

# The scopes that are open in this thread or task, the innermost last.
_entered: ContextVar[tuple[ExitStack, ...]] = ContextVar("tensormem.mr.limits.entered", default=())


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

    def __init__(self, nbytes: SupportsIndex | str | None = None, *, space: SpaceLike | None = None) -> None:
        super().__init__(nbytes)
        self.space = None if space is None else LogicalMemorySpace.parse(space)

    def __enter__(self) -> Self:
        scope = ExitStack()
        scope.enter_context(use_limit(self, None if self.space is None else str(self.space)))
        _entered.set((*_entered.get(), scope))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not _entered.get():
            raise InvalidArgument("this limit is not in force here: it ends in the thread or task where it began")
        *before, scope = _entered.get()
        _entered.set(tuple(before))
        scope.close()
