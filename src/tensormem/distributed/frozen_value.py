"""Owns: a value that is put aside and comes back as it was: what describes it, and its large memory beside that.

Whatever holds the memory, a tensor alone or in a pair, an array in an object, pickle finds it. Must not know: where it
is kept meanwhile.
"""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

from tensormem._core import Tensor
from tensormem.tensor import empty

__all__ = ["FrozenValue", "size_of"]


class FrozenValue(NamedTuple):
    """A value as pickle has it. The buffers are the value's own memory until somebody stores them.

    >>> import tensormem as tm
    >>> frozen = FrozenValue.of((tm.full(3, 1, "int8"), tm.full(3, 2, "int8")))
    >>> [tensor.tolist() for tensor in frozen.thawed()], size_of(frozen)
    ([[1, 1, 1], [2, 2, 2]], 6)
    """

    described: bytes
    buffers: list[Any]
    writable: list[bool]

    @classmethod
    def of(cls, value: Any) -> FrozenValue:
        """The value, and nothing copied of it. An error of pickle for what cannot be pickled."""
        buffers: list[pickle.PickleBuffer] = []
        described = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        return cls(described, list(buffers), [not each.raw().readonly for each in buffers])

    def thawed(self) -> Any:
        """The value again, in memory of the current resource; what could be written can be."""
        return pickle.loads(self.described, buffers=list(map(_copied, self.buffers, self.writable)))


def size_of(frozen: FrozenValue) -> int:
    """The bytes of memory that go with it; what describes them is small."""
    return sum(memoryview(each).nbytes for each in frozen.buffers)


def _copied(buffer: Any, writable: bool) -> Tensor:
    source = memoryview(buffer).cast("B")
    made = empty(source.nbytes, "uint8")
    memoryview(made)[:] = source
    return made if writable else made.as_readonly()
