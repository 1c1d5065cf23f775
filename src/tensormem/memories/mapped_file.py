"""Owns: storages over files in memory: read-only, copy-on-write, or shared with whoever else maps the file.

The pages are the page cache's own: nothing is read before it is touched, and nothing is copied. Must not know: tensors,
file formats.
"""

from __future__ import annotations

import mmap
import os
from enum import StrEnum

from tensormem import errors
from tensormem._core import Storage, host_driver, take_buffer
from tensormem.memories.kinds import TensorMemory
from tensormem.spaces import main

__all__ = ["FileMode", "map_file"]


class FileMode(StrEnum):
    """How a file is mapped: "r" read-only, "c" copy-on-write (the file stays as it is), "r+" shared (the file changes).

    >>> FileMode("r+") is FileMode.SHARED
    True
    """

    READ_ONLY = "r"
    COPY_ON_WRITE = "c"
    SHARED = "r+"


_ACCESS = {
    FileMode.READ_ONLY: mmap.ACCESS_READ,
    FileMode.COPY_ON_WRITE: mmap.ACCESS_COPY,
    FileMode.SHARED: mmap.ACCESS_WRITE,
}


def map_file(path: str | os.PathLike[str], mode: str = "r") -> Storage:
    """The bytes of a file as a storage. The file must not be cut short while it is mapped.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"four")
    ...     file.flush()
    ...     map_file(file.name).nbytes
    4
    """
    if mode not in set(FileMode):
        raise errors.InvalidArgument(f"a file is mapped 'r', 'c' or 'r+', not {mode!r:.40}")
    kind = FileMode(mode)
    with open(path, "r+b" if kind is FileMode.SHARED else "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise errors.InvalidSize(0, what=f"{os.fspath(path)} is empty, and nothing cannot be mapped")
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=_ACCESS[kind])
        except OSError as error:
            raise errors.from_system("mmap", error) from None
    # The buffer keeps the mapping; when the storage lets go of it, the mapping goes too.
    owner, address, nbytes, readonly, *_ = take_buffer(mapped)
    return Storage(
        address,
        nbytes,
        owner=owner,
        space=main,
        memory=TensorMemory.MEM,
        device=(1, 0),
        driver=host_driver(),
        readonly=readonly,
        reason=f"{os.fspath(path)} in memory, {kind.name.lower().replace('_', ' ')}",
    )
