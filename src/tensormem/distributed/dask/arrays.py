"""Owns: NumPy arrays that are views of our tensors, as Dask's headers and frames: they go as tensors do, by descriptor
inside a node and counted where they arrive, and arrive as arrays. All other arrays go as Dask sends them.

Must not know: how a tensor is sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensormem._core import Tensor
from tensormem.distributed.dask import serializers
from tensormem.dtypes import dtype as find_dtype
from tensormem.errors import InvalidDType

__all__ = ["deserialize_array", "serialize_array", "tensor_behind"]


def tensor_behind(array: np.ndarray[Any, Any]) -> Tensor | None:
    """The tensor of which an array shows a part, as a tensor of that part; None if the memory is not of one.

    >>> import tensormem as tm
    >>> array = tm.arange(6).numpy()[1::2]
    >>> tensor_behind(array).tolist(), tensor_behind(array.copy())
    ([1, 3, 5], None)
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    whole = base.obj if isinstance(base, memoryview) else base
    itemsize = array.dtype.itemsize
    if type(whole) is not Tensor or not array.size or any(step % itemsize for step in array.strides):
        return None
    try:
        element = find_dtype(array.dtype)
    except InvalidDType:  # times and structures, which only NumPy knows
        return None
    offset = whole.offset + array.__array_interface__["data"][0] - whole.ptr
    strides = [step // itemsize for step in array.strides]
    readonly = not array.flags.writeable
    return Tensor(whole.storage, element, array.shape, strides=strides, offset=offset, readonly=readonly or None)


def serialize_array(array: np.ndarray[Any, Any], context: Any = None) -> tuple[dict[str, Any], list[Any]]:
    """What Dask asks for."""
    tensor = tensor_behind(array) if type(array) is np.ndarray else None
    if tensor is None:
        from distributed.protocol.numpy import serialize_numpy_ndarray  # what we stand in the place of

        plain: tuple[dict[str, Any], list[Any]] = serialize_numpy_ndarray(array, context)
        return plain
    header, frames = serializers.serialize(tensor, context)
    return {"tensormem": header}, frames


def deserialize_array(header: dict[str, Any], frames: list[Any]) -> np.ndarray[Any, Any]:
    """What `serialize_array` or Dask's own function described."""
    if "tensormem" not in header:
        from distributed.protocol.numpy import deserialize_numpy_ndarray

        plain: np.ndarray[Any, Any] = deserialize_numpy_ndarray(header, frames)
        return plain
    array: np.ndarray[Any, Any] = serializers.deserialize(header["tensormem"], frames).numpy()
    return array
