"""Owns: DMA-BUFs of ordinary memory (udmabuf): a memfd that can no longer shrink, handed to the kernel to be one.

Must not know: mappings, storages, heaps.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from pathlib import Path

from tensormem import errors
from tensormem.memories.dma import ioctls
from tensormem.memories.dma.device import open_device, refusal
from tensormem.units import format_size

__all__ = ["allocate_udmabuf", "size_limit"]

DEVICE = "/dev/udmabuf"
MISSING = "Linux was built without CONFIG_UDMABUF, or this container was started without --device=/dev/udmabuf"

_SIZE_LIMIT = Path("/sys/module/udmabuf/parameters/size_limit_mb")
_CLOSE_ON_EXEC = 1


def size_limit() -> int | None:
    """How many bytes one buffer may have at most; None where the module does not say.

    >>> size_limit() is None or size_limit() > 0
    True
    """
    try:
        return int(_SIZE_LIMIT.read_text()) << 20
    except (OSError, ValueError):
        return None


def allocate_udmabuf(nbytes: int, name: str = "tensormem") -> int:
    """A new descriptor of a DMA-BUF of at least `nbytes`, zeroed."""
    rounded = nbytes + -nbytes % mmap.PAGESIZE
    limit = size_limit()
    if limit is not None and rounded > limit:
        raise errors.MemoryUnavailable(
            "dma",
            f"{nbytes} bytes are more than the {format_size(limit)} that udmabuf gives one buffer; root can write "
            f"another limit to {_SIZE_LIMIT}, or take a heap",
        )
    try:
        device = open_device(DEVICE)
    except OSError as refused:
        raise refusal(refused, DEVICE, MISSING) from None
    try:
        return _create(device, rounded, name)
    except OSError as refused:
        raise ioctls.failure(refused, f"UDMABUF_CREATE of {rounded} bytes") from None
    finally:
        os.close(device)


def _create(device: int, nbytes: int, name: str) -> int:
    memory = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(memory, nbytes)
        # The kernel asks for this seal: memory that a device may write must not go away under it.
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return ioctls.ask(
            device, ioctls.UDMABUF_CREATE, bytearray(struct.pack("=IIQQ", memory, _CLOSE_ON_EXEC, 0, nbytes))
        )
    finally:
        os.close(memory)  # the pages are the buffer's now
