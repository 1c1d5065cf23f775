"""Owns: tensors as pickles. From protocol 5 on the bytes go out of band where the pickler takes them so: no copy.

Must not know: who carries the bytes, or how they are described (wire).
"""

from __future__ import annotations

import pickle
from typing import Any, SupportsIndex

from tensormem._core import Tensor
from tensormem.tensor.wire import pack, unpack

__all__ = ["rebuild", "reduce"]


def reduce(tensor: Tensor, protocol: SupportsIndex) -> tuple[Any, tuple[bytes, Any]]:
    """What `pickle` asks for. A tensor of a GPU is copied to main memory to be sent, and goes back when it arrives."""
    header, data = pack(tensor)
    if protocol.__index__() >= 5:
        carried: Any = pickle.PickleBuffer(data)
    else:
        carried = bytes(data) if tensor.readonly else bytearray(data)
    return rebuild, (header, carried)


def rebuild(header: bytes, data: Any) -> Tensor:
    """A tensor over the bytes that arrived: read-only if they are.

    >>> import tensormem as tm
    >>> make, parts = reduce(tm.zeros(1), 4)
    >>> rebuild(*parts).tolist()
    [0.0]
    """
    return unpack(header, data)
