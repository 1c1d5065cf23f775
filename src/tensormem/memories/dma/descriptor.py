"""Owns: what a foreign file descriptor is: whether it is a DMA-BUF, how large, which one, and if it may be written.

Everything is asked of the kernel before anything is believed. Must not know: mappings, storages.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex

from tensormem import errors
from tensormem.memories.dma import ioctls

__all__ = ["Descriptor", "is_dma_buf"]


@dataclass(frozen=True)
class Descriptor:
    """The facts of a descriptor of a DMA-BUF. It is borrowed: nobody here closes it.

    >>> Descriptor.inspect(0)
    Traceback (most recent call last):
    ...
    tensormem.errors.InvalidArgument: invalid argument: descriptor 0 is no DMA-BUF: ...
    """

    fd: int
    nbytes: int
    identity: tuple[int, int]
    writable: bool

    @classmethod
    def inspect(cls, fd: SupportsIndex) -> Descriptor:
        """The facts; `InvalidArgument` for what is no open descriptor of a DMA-BUF."""
        number = _number(fd)
        try:
            kind = _file_system(number)
            if kind != ioctls.DMA_BUF_MAGIC:
                raise errors.InvalidArgument(
                    f"descriptor {number} is no DMA-BUF: its file system is of type {kind:#x}, not "
                    f"{ioctls.DMA_BUF_MAGIC:#x}"
                )
            nbytes = os.lseek(number, 0, os.SEEK_END)
            os.lseek(number, 0, os.SEEK_SET)
            facts = os.fstat(number)
            mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
        except OSError as refused:
            if refused.errno == errno.EBADF:
                raise errors.InvalidArgument(f"descriptor {number} is not open") from None
            raise ioctls.failure(refused, f"looking at descriptor {number}") from None
        return cls(number, nbytes, (facts.st_dev, facts.st_ino), mode == os.O_RDWR)


def is_dma_buf(fd: SupportsIndex) -> bool:
    """Whether it is an open descriptor of a DMA-BUF.

    >>> is_dma_buf(0), is_dma_buf(-1)
    (False, False)
    """
    try:
        return _file_system(index(fd)) == ioctls.DMA_BUF_MAGIC
    except (OSError, OverflowError):
        return False


def _number(fd: SupportsIndex) -> int:
    try:
        number = index(fd)
    except TypeError:
        raise errors.InvalidArgument(f"a file descriptor is a whole number, not {type(fd).__name__}") from None
    if isinstance(fd, bool) or not 0 <= number < 2**31:
        raise errors.InvalidArgument(f"{fd!r:.40} is no file descriptor")
    return number


def _file_system(fd: int) -> int:
    """The type of its file system, by `fstatfs`: the first word of what it fills in."""
    facts = (ctypes.c_long * 64)()
    if ctypes.CDLL(None, use_errno=True).fstatfs(ctypes.c_int(fd), facts) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(facts[0]) & 0xFFFFFFFF
