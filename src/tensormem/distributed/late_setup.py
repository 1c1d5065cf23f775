"""Owns: a worker that could not be set up when it was born: every allocation says why, and tries again first.

Must not know: engines; they bring how to set up.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

from tensormem.distributed.worker_stack import WorkerStack
from tensormem.errors import TensormemError
from tensormem.mr import CallbackMemoryResource, DeviceBlock
from tensormem.streams import Stream

__all__ = ["LateSetUp"]


class LateSetUp:
    """Stands in for a stack until `set_up()` gives one. `where` is what its refusals say of the worker.

    >>> from tensormem.errors import SetUpConflict
    >>> def full():
    ...     raise SetUpConflict("the node is full")
    >>> late = LateSetUp(full, "worker 7 on node 1")
    >>> late.resource.allocate(1000)
    Traceback (most recent call last):
    tensormem.errors.SetUpConflict: ...the node is full; worker 7 on node 1...
    """

    def __init__(self, set_up: Callable[[], WorkerStack], where: str) -> None:
        self._set_up, self._where = set_up, where
        self._lock = threading.Lock()
        self._stack: WorkerStack | None = None
        self._blocks: dict[int, DeviceBlock] = {}
        self.resource = CallbackMemoryResource(self._allocate, self._deallocate)

    def _allocate(self, nbytes: int, stream: Stream) -> int:
        try:
            with self._lock:
                self._stack = self._stack or self._set_up()
        except TensormemError as error:
            raise self._refusal(error) from None
        # Who asks from now on finds the stack itself; this is for those who had asked already.
        block = self._stack.resource.allocate(nbytes, stream)
        self._blocks[block.ptr] = block
        return block.ptr

    def _deallocate(self, address: int, nbytes: int, stream: Stream) -> None:
        assert self._stack is not None
        self._stack.resource.deallocate(self._blocks.pop(address), stream)

    def _refusal(self, error: TensormemError) -> TensormemError:
        said = copy.copy(error)  # with its own advice
        said.what = f"{error.what}; {self._where}" if error.what else self._where
        return said
