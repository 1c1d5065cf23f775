"""Owns: whether this machine gives DMA-BUFs to this user, and the exact reason when not.

Nothing is allocated to find out. Must not know: storages.
"""

from __future__ import annotations

import os

from tensormem.memories.dma import heaps, udmabuf
from tensormem.memories.dma.device import why_not_open

__all__ = ["why_not"]


def why_not() -> str | None:
    """None if a heap or udmabuf can be used; else why neither can, and what to do.

    >>> why_not() is None or "/dev/" in why_not()
    True
    """
    reasons: list[str] = []
    for path in [f"{heaps.FOLDER}/{name}" for name in heaps.preferred_heaps()] or [heaps.FOLDER]:
        reason = _heap_reason(path)
        if reason is None:
            return None
        reasons.append(reason)
    reason = why_not_open(udmabuf.DEVICE, udmabuf.MISSING)
    return None if reason is None else "; ".join([*reasons, reason])


def _heap_reason(path: str) -> str | None:
    if path != heaps.FOLDER:
        return why_not_open(path, heaps.MISSING)
    if os.path.isdir(path) and not os.access(path, os.R_OK | os.X_OK):
        return f"the folder {path} is closed to this user"
    if listed := heaps.list_heaps():
        return f"the heaps of this machine ({', '.join(listed)}) are for special purposes, to be chosen by name"
    return f"there is no {path}: {heaps.MISSING}"
