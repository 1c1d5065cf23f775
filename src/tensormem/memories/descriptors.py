"""Owns: storages of whatever a descriptor stands for, and descriptors of storages.

What it is is told by the file system it is of, never by numbers that differ from boot to boot. Must not know: tensors.
"""

from __future__ import annotations

import os
import stat
from importlib import import_module
from typing import SupportsIndex

from tensormem import errors
from tensormem._core import Storage, describe_fd

__all__ = ["export_fd", "storage_from_fd"]

_TYPES = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISREG, "a file on a disk"),
)
# The module whose `from_fd` takes it, by what the descriptor stands for.
_TAKERS = {"shm": "tensormem.memories.shm", "hugetlb": "tensormem.memories.shm", "dma": "tensormem.memories.dma"}


def storage_from_fd(
    fd: SupportsIndex,
    nbytes: int | None = None,
    *,
    readonly: bool = False,
    trust: bool = False,
    tag: str | None = None,
) -> Storage:
    """A storage over the memory behind a descriptor, of which a duplicate is kept; `fd` stays the caller's.

    The same memory has the same identity, by whatever descriptor it comes.

    >>> from tensormem.memories import allocate
    >>> mine = allocate(64, "shm")
    >>> fd = export_fd(mine)
    >>> storage_from_fd(fd).aliases(mine)
    True
    >>> os.close(fd)
    """
    kind, _, _ = describe_fd(fd)
    if kind not in _TAKERS:
        raise errors.InvalidArgument(
            f"descriptor {fd} is {_what(fd.__index__())}; only shared memory and DMA-BUFs are tensors' memory"
        )
    options = {"trust": True} if trust and kind != "dma" else {}
    try:
        taker = import_module(_TAKERS[kind])
    except ImportError as missing:
        raise errors.MemoryUnavailable(kind, str(missing)) from None
    storage: Storage = taker.from_fd(fd, nbytes, readonly, tag=tag, **options)
    return storage


def export_fd(storage: Storage, *, readonly: bool = False, trust: bool = False) -> int:
    """A new descriptor of a storage's memory, which the caller closes; by a read-only one nobody can write."""
    owner = storage.owner
    if storage.closed:
        raise errors.UseAfterFree(storage.id, 0, what="the storage was closed")
    if storage.owner_offset:
        raise errors.NotSupported(f"a descriptor of {storage.memory} memory with guards around it")
    export = getattr(owner, "export_readonly_fd" if readonly else "export_fd", None)
    if export is None:
        kind = f"{storage.memory} memory" if not hasattr(owner, "export_fd") else f"read-only {storage.memory} memory"
        raise errors.NotSupported(f"a descriptor of {kind}; make the tensor with memory='shm'")
    fd: int = export(trust=True) if trust else export()
    return fd


def _what(fd: int) -> str:
    mode = os.fstat(fd).st_mode
    return next((name for is_type, name in _TYPES if is_type(mode)), "no memory")
