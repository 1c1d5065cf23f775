"""Owns: tensors over the memory behind a descriptor, and descriptors of tensors' memory.

Must not know: which kinds of memory have descriptors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import SupportsIndex

from tensormem import errors
from tensormem._core import Tensor
from tensormem.dtypes import dtype as find_dtype
from tensormem.memories.descriptors import export_fd, storage_from_fd

__all__ = ["clone_fd", "from_fd"]


def from_fd(
    fd: SupportsIndex,
    dtype: object = "uint8",
    shape: SupportsIndex | Iterable[SupportsIndex] | None = None,
    *,
    strides: Iterable[SupportsIndex] | None = None,
    offset: SupportsIndex = 0,
    readonly: bool = False,
    trust: bool = False,
    tag: str | None = None,
) -> Tensor:
    """A tensor over the memory behind a descriptor: shared memory or a DMA-BUF. A duplicate is kept; `fd` stays yours.

    Type, size and seals are checked first: what is too small, may only be read (without `readonly`), or could be made
    shorter by whoever holds it, is refused; `trust` allows that last one. Without a shape, all elements there are.
    `tag` is what the memory is called in traces and reports.

    >>> import os
    >>> import tensormem as tm
    >>> mine = tm.full((2, 3), 7, "int16", memory="shm")
    >>> fd = mine.clone_fd()
    >>> theirs = tm.from_fd(fd, "int16", (2, 3), readonly=True)
    >>> os.close(fd)
    >>> theirs.tolist(), theirs.aliases(mine), theirs.readonly
    ([[7, 7, 7], [7, 7, 7]], True, True)
    """
    element = find_dtype(dtype)
    storage = storage_from_fd(fd, readonly=readonly, trust=trust, tag=tag)
    if shape is None:
        if element.is_subbyte or strides is not None:
            raise errors.InvalidArgument("say the shape")
        left = storage.nbytes - offset.__index__()
        if left < 0 or left % element.itemsize:
            raise errors.InvalidSize(left, what=f"not a whole number of {element} elements; give a shape")
        shape = left // element.itemsize
    return Tensor(storage, element, shape, strides=strides, offset=offset)


def clone_fd(tensor: Tensor, readonly: bool, trust: bool) -> int:
    """See `Tensor.clone_fd`."""
    tensor.wait()
    return export_fd(tensor.storage, readonly=bool(readonly or tensor.readonly), trust=bool(trust))
