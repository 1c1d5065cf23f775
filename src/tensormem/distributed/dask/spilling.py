"""Owns: making room by Dask's own means: the worker's spill buffer moves its oldest values to disk.

Must not know: who is short of memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from distributed import Worker

from tensormem.distributed.dask import internals

__all__ = ["Spilling"]


class Spilling:
    """Evicts from a worker's data on the worker's own event loop, which alone may touch it."""

    def __init__(self, worker: Worker, live_bytes: Callable[[], int], patience: float) -> None:
        self._worker, self._live_bytes, self._patience = worker, live_bytes, patience
        self._loop = internals.event_loop(worker)
        self._thread = threading.get_ident()
        self.moved_bytes = 0
        """What was let go of for others, ever: bytes that are free since."""

    def __call__(self, wanted: int) -> None:
        """Spill values until `wanted` bytes that counted are free, or there are none left."""
        if threading.get_ident() == self._thread:
            self._evict(wanted)  # a message that arrives is being unpacked there
            return
        done = asyncio.run_coroutine_threadsafe(self._evict_there(wanted), self._loop)
        try:
            done.result(self._patience)
        except TimeoutError:
            done.cancel()

    async def _evict_there(self, wanted: int) -> None:
        self._evict(wanted)

    def _evict(self, wanted: int) -> None:
        before = self._live_bytes()
        while before - self._live_bytes() < wanted and internals.evict_oldest(self._worker):
            pass
        self.moved_bytes += max(before - self._live_bytes(), 0)

    def spilled_bytes(self) -> int:
        """What lies on disk now."""
        return internals.spilled_bytes(self._worker)
