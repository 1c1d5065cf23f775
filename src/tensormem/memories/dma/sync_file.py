"""Owns: fences of a DMA-BUF as sync files: what somebody has to wait for, and what others shall wait for.

A sync file is a descriptor that polls readable when its fences are done. Must not know: who makes the fences.
"""

from __future__ import annotations

import errno
import struct

from tensormem import errors
from tensormem.memories.dma import ioctls
from tensormem.memories.dma.sync import direction

__all__ = ["export_sync_file", "import_sync_file"]

_NEEDS = "sync files of a DMA-BUF need Linux 6.0 or newer, built with CONFIG_SYNC_FILE"


def export_sync_file(fd: int, mode: str) -> int:
    """A new sync file of what an access of `mode` has to wait for: for "r" the writes, else the reads as well.

    The caller closes it. `NotSupported` where the kernel cannot.
    """
    data = bytearray(struct.pack("=Ii", direction(mode), -1))
    _ask(fd, ioctls.EXPORT_SYNC_FILE, data, "DMA_BUF_IOCTL_EXPORT_SYNC_FILE")
    return int(struct.unpack("=Ii", data)[1])


def import_sync_file(fd: int, sync_file: int, mode: str) -> None:
    """Let later users of the buffer wait for this sync file, as for an access of `mode`. The caller keeps it."""
    data = bytearray(struct.pack("=Ii", direction(mode), sync_file))
    _ask(fd, ioctls.IMPORT_SYNC_FILE, data, "DMA_BUF_IOCTL_IMPORT_SYNC_FILE")


def _ask(fd: int, number: int, data: bytearray, call: str) -> None:
    try:
        ioctls.ask(fd, number, data)
    except OSError as refused:
        if refused.errno == errno.ENOTTY:
            raise errors.NotSupported(_NEEDS) from None
        if refused.errno in (errno.EINVAL, errno.EBADF) and number == ioctls.IMPORT_SYNC_FILE:
            raise errors.InvalidArgument("what was given is no open sync file") from None
        raise ioctls.failure(refused, call) from None
