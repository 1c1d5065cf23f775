"""Owns: tasks that start only when the memory of their inputs counts: what came when there was no room is paid first.

A task that cannot have its inputs fails as one that cannot allocate does. It cannot be refused earlier: for Dask, an
input that does not arrive is one to wait for. Must not know: how memory is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from distributed import Worker

from tensormem._core import Tensor
from tensormem.distributed.dask import internals
from tensormem.distributed.received import Received, ReceivedMemory

__all__ = ["Settling"]


class Settling:
    """Stands before a worker's `execute` until `close`."""

    def __init__(self, worker: Worker, received: Received) -> None:
        self._worker, self._received, self._closed = worker, received, False
        self._execute = internals.swap_execute(worker, self.execute)

    async def execute(self, key: Any, *, stimulus_id: str) -> Any:
        """What Dask calls to run a task; its inputs stay where they are until it has them."""
        inputs: dict[Any, Any] = {}
        try:
            inputs |= self._inputs_of(key)
            for owner in set(_owners_in(list(inputs.values()))):
                if owner.owed:
                    await asyncio.to_thread(owner.pay)  # others spill meanwhile, and so may this worker
        except Exception as refusal:
            self._put_aside(inputs)
            return internals.execute_failure(self._worker, key, refusal, stimulus_id)
        return await self._execute(key, stimulus_id=stimulus_id)

    def _inputs_of(self, key: Any) -> dict[Any, Any]:
        """The values that may be owed: all that are here, and those that come from disk now."""
        if self._closed or not (self._received.owed or internals.has_spilled(self._worker)):
            return {}
        return internals.inputs_of(self._worker, key)

    def _put_aside(self, inputs: dict[Any, Any]) -> None:
        """On to the disk with what was refused, where there is one."""
        owed = [name for name, value in inputs.items() if any(owner.owed for owner in _owners_in(value))]
        inputs.clear()
        internals.put_aside(self._worker, owed)

    def close(self) -> None:
        """Tasks start as Dask starts them."""
        self._closed = True
        internals.restore_execute(self._worker, self.execute, self._execute)  # or somebody finds us open


def _owners_in(value: Any) -> Iterator[ReceivedMemory]:
    """The received memory in a value; Dask looks for what it serializes in the same collections."""
    tensor = value if type(value) is Tensor else _tensor_behind(value)
    if tensor is not None:
        owner = tensor.storage.owner
        if isinstance(owner, ReceivedMemory):
            yield owner
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _owners_in(each)
    elif isinstance(value, dict):
        yield from _owners_in(list(value.values()))


def _tensor_behind(value: Any) -> Tensor | None:
    if type(value).__module__ != "numpy":
        return None
    from tensormem.distributed.dask.arrays import tensor_behind

    return tensor_behind(value) if hasattr(value, "__array_interface__") else None
