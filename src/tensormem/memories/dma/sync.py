"""Owns: the brackets around CPU access to a DMA-BUF (DMA_BUF_IOCTL_SYNC), and a count of them.

Between a start and its end the caches of the CPU and the device agree, in the direction that was said. A start waits
for what the device still does with the buffer. Must not know: mappings, storages.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter

from tensormem import errors
from tensormem.memories.dma import ioctls

__all__ = ["Syncs", "direction"]

_DIRECTIONS = {"r": 1, "w": 2, "rw": 3}
_END = 4


def direction(mode: str) -> int:
    """The kernel's bits for "r", "w" or "rw".

    >>> direction("rw")
    3
    """
    try:
        return _DIRECTIONS[mode]
    except (KeyError, TypeError):
        raise errors.InvalidArgument(f"an access is 'r', 'w' or 'rw', not {mode!r:.40}") from None


class Syncs:
    """Starts and ends of accesses to one buffer, counted by mode.

    >>> Syncs().started
    Counter()
    """

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def open(self) -> int:
        """How many accesses have started and not ended."""
        with self._lock:
            return self.started.total() - self.ended.total()

    def start(self, fd: int, mode: str) -> None:
        """Say that the CPU begins to read, to write or both."""
        self._sync(fd, direction(mode), f"DMA_BUF_IOCTL_SYNC, start of {mode!r}")
        with self._lock:
            self.started[mode] += 1

    def end(self, fd: int, mode: str) -> None:
        """Say that it is done. One that the kernel refuses is over as well."""
        try:
            self._sync(fd, direction(mode) | _END, f"DMA_BUF_IOCTL_SYNC, end of {mode!r}")
        finally:
            with self._lock:
                self.ended[mode] += 1

    def end_all(self, fd: int) -> None:
        """End whatever has started and not ended."""
        for mode in (self.started - self.ended).elements():
            self.end(fd, mode)

    def _sync(self, fd: int, flags: int, call: str) -> None:
        try:
            ioctls.ask(fd, ioctls.SYNC, bytearray(struct.pack("=Q", flags)))
        except OSError as refused:
            raise ioctls.failure(refused, call) from None
