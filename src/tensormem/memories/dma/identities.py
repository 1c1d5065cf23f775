"""Owns: which storage id stands for which DMA-BUF, as long as somebody here holds it.

A buffer is known by its device and inode, so a duplicate and a second import have the id of the first. The kernel may
give an inode again after the last holder is gone; the id is then a new one. Must not know: how buffers are mapped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tensormem._core import Storage

__all__ = ["Identities"]


class Identities:
    """Ids by identity, counted.

    >>> Identities().known
    0
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # giving back may happen in a collection in the middle of taking
        self._holders: dict[tuple[int, int], tuple[int, int]] = {}  # identity: (storage id, how many hold it)

    @property
    def known(self) -> int:
        """How many different buffers are held."""
        return len(self._holders)

    def make(self, identity: tuple[int, int], build: Callable[[int | None], Storage]) -> Storage:
        """A storage made by `build`, which gets the id to use, or None for a new one. Give back with `drop`."""
        with self._lock:
            known = self._holders.get(identity)
            storage = build(None if known is None else known[0])
            # Asked again: the last other holder may have been collected meanwhile.
            others = self._holders.get(identity, (0, 0))[1]
            self._holders[identity] = (storage.id, others + 1)
            return storage

    def drop(self, identity: tuple[int, int]) -> None:
        """One holder less."""
        with self._lock:
            storage_id, holders = self._holders[identity]
            if holders > 1:
                self._holders[identity] = (storage_id, holders - 1)
            else:
                del self._holders[identity]
