"""Owns: tensors as pickles. From protocol 5 on the bytes go out of band where the pickler takes them so: no copy.

Must not know: who carries the bytes.
"""

from __future__ import annotations

import pickle
from typing import Any, SupportsIndex

from tensormem._core import Tensor, reinterpret
from tensormem.dtypes import DType
from tensormem.spaces import LogicalMemorySpace, main
from tensormem.tensor.making import from_buffer

__all__ = ["rebuild", "reduce"]

_Parts = tuple[Any, DType, tuple[int, ...], LogicalMemorySpace]


def reduce(tensor: Tensor, protocol: SupportsIndex) -> tuple[Any, _Parts]:
    """What `pickle` asks for. A tensor of a GPU is copied to main memory to be sent, and goes back when it arrives."""
    here = tensor.to(main) if not tensor.storage.mappable else tensor
    data = reinterpret(here.contiguous(), "uint8") if tensor.size else from_buffer(b"")
    if protocol.__index__() >= 5:
        carried: Any = pickle.PickleBuffer(data)
    else:
        carried = bytes(data) if tensor.readonly else bytearray(data)
    return rebuild, (carried, tensor.dtype, tensor.shape, tensor.space)


def rebuild(data: Any, dtype: DType, shape: tuple[int, ...], space: LogicalMemorySpace) -> Tensor:
    """A tensor over the bytes that arrived: read-only if they are.

    >>> rebuild(bytearray(4), DType(2, 32), (1,), main).tolist()
    [0.0]
    """
    return from_buffer(data, dtype, shape).to(space)
