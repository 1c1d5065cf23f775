"""Owns: the DMA heaps of this machine: which there are, which are for general use, and allocating from one by name.

Must not know: mappings, storages, udmabuf.
"""

from __future__ import annotations

import os
import struct

from tensormem import errors
from tensormem.memories.dma import ioctls
from tensormem.memories.dma.device import open_device, refusal

__all__ = ["allocate_from_heap", "heap_path", "list_heaps", "preferred_heaps"]

FOLDER = "/dev/dma_heap"
MISSING = "Linux was built without CONFIG_DMABUF_HEAPS, or this container was started without --device=/dev/dma_heap"


def list_heaps() -> list[str]:
    """The names of the heaps, whether or not this user may allocate from them.

    >>> all(isinstance(name, str) for name in list_heaps())
    True
    """
    try:
        return sorted(os.listdir(FOLDER))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    except OSError as refused:
        raise ioctls.failure(refused, f"listing {FOLDER}") from None


def preferred_heaps() -> list[str]:
    """The heaps to try when nobody names one, best first.

    Contiguous memory first, because some devices can use no other; then that of the system. Heaps for one purpose, such
    as protected video, are left to those who name them.
    """
    heaps = list_heaps()
    contiguous = [name for name in heaps if "cma" in name.lower() or name == "reserved"]
    return contiguous + [name for name in heaps if name == "system"]


def heap_path(name: str) -> str:
    """The device of a heap that is there; `MemoryUnavailable` lists those that are."""
    heaps = list_heaps()
    if name in heaps:
        return f"{FOLDER}/{name}"
    if not heaps:
        raise errors.MemoryUnavailable("dma", f"there is no heap {name!r:.60}: {MISSING}")
    raise errors.MemoryUnavailable("dma", f"there is no heap {name!r:.60}; this machine has {', '.join(heaps)}")


def memory_left() -> int:
    """Bytes that the system could give without ending anybody, by its own estimate.

    >>> memory_left() > 0
    True
    """
    try:
        with open("/proc/meminfo", encoding="utf-8") as lines:
            kibibytes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    except OSError as refused:
        raise ioctls.failure(refused, "reading /proc/meminfo") from None
    return (kibibytes["MemAvailable"] + kibibytes.get("SwapFree", 0)) << 10


def allocate_from_heap(name: str, nbytes: int) -> int:
    """A new descriptor of a DMA-BUF of at least `nbytes`, zeroed."""
    path = heap_path(name)
    if name == "system":
        _check_room(nbytes)
    try:
        heap = open_device(path)
    except OSError as refused:
        raise refusal(refused, path, MISSING) from None
    try:
        data = bytearray(struct.pack("=QIIQ", nbytes, 0, os.O_RDWR | os.O_CLOEXEC, 0))
        ioctls.ask(heap, ioctls.HEAP_ALLOC, data)
        return int(struct.unpack("=QIIQ", data)[1])
    except OSError as refused:
        raise ioctls.failure(refused, f"DMA_HEAP_IOCTL_ALLOC of {nbytes} bytes from heap {name}") from None
    finally:
        os.close(heap)


def _check_room(nbytes: int) -> None:
    # The kernel would try, page by page, and end other processes before it gives up.
    left = memory_left()
    if nbytes > left:
        raise errors.OutOfMemory(nbytes, left, left, what="heap system takes from what all processes have")
