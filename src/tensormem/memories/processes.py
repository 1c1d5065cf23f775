"""Owns: how tensors of shared memory travel through `multiprocessing`: as a descriptor, without a copy.

Only there: a plain pickle may go to a file or another machine, and copies the bytes. A tensor of other memory is copied
here too. Must not know: which kinds can be shared; their owners offer a descriptor or do not.
"""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

from tensormem._core import Tensor
from tensormem.dtypes import DType
from tensormem.memories.descriptors import export_fd, storage_from_fd
from tensormem.sockets.descriptors import Carried, carry, with_carried

__all__ = ["install"]


def install() -> None:
    """Let `multiprocessing` send tensors so, from now on."""
    ForkingPickler.register(Tensor, _reduce)


def _reduce(tensor: Tensor) -> Any:
    if not hasattr(tensor.storage.owner, "export_fd"):
        return tensor.__reduce_ex__(pickle.DEFAULT_PROTOCOL)
    return _rebuild, (_sent(tensor), tensor.storage.nbytes, tensor.dtype, tensor.shape, *_layout(tensor))


def _layout(tensor: Tensor) -> tuple[tuple[int, ...], int, bool]:
    # Where only this process may write, the tensor arrives read-only.
    return tensor.strides, tensor.offset, tensor.readonly or getattr(tensor.storage.owner, "readers_only", False)


def _sent(tensor: Tensor) -> Carried:
    tensor.wait()
    # The processes of one program trust each other, also where the memory cannot be sealed.
    unsealed = getattr(tensor.storage.owner, "sealed", True) is False
    fd = export_fd(tensor.storage, readonly=tensor.readonly and _reads_only(tensor), trust=unsealed)
    return carry(fd)[0]


def _reads_only(tensor: Tensor) -> bool:
    return hasattr(tensor.storage.owner, "export_readonly_fd")


def _rebuild(
    descriptor: Carried,
    nbytes: int,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    readonly: bool,
) -> Tensor:
    storage = with_carried(lambda fd: storage_from_fd(fd, nbytes, readonly=readonly, trust=True), descriptor)
    return Tensor(storage, dtype, shape, strides=strides, offset=offset)
