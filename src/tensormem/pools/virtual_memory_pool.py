"""Owns: the elastic pool of a driver found by name, its reports, and suspension with contents.

Must not know: tensors and tenants.
"""

import threading

from tensormem import _core, errors
from tensormem._core import Driver
from tensormem.pools.compaction_report import CompactionReport
from tensormem.pools.memory_stats import MemoryStats
from tensormem.pools.spilled import Spilled
from tensormem.vmm.manager import find_driver

__all__ = ["VirtualMemoryPool"]


class VirtualMemoryPool(_core.VirtualMemoryPool):
    """Many addresses, and memory only where they are used: 128 GiB for a cache that holds 3.

    `allocate(offset, size)` puts whole pages at a place of yours; `allocate(size=...)` finds room for a block. Freed
    pages are kept for reuse up to `release_threshold`, then go back; with `low_water` and `background` a thread makes
    pages ahead. `physical_limit`, or a `budget` shared with others, bounds the memory.

    >>> import tensormem as tm
    >>> with tm.VirtualMemoryPool("128GiB", physical_limit="1GiB") as pool:
    ...     address = pool.allocate("100GiB", "4MiB")
    ...     address == pool.base_address + 100 * 2**30, pool.physical_memory_usage
    ...     pool.deallocate("100GiB", "4MiB")
    ...     pool.trim()
    (True, 4194304)
    4194304
    """

    def __init__(
        self,
        capacity: int | str,
        page_size: int | str = "2MiB",
        device: str | Driver = "host",
        *,
        physical_limit: int | str | None = None,
        budget: _core.Budget | None = None,
        release_threshold: int | str | None = "256MiB",
        low_water: int | str = 0,
        background: bool = False,
    ) -> None:
        driver, ordinal = (device, 0) if isinstance(device, Driver) else find_driver(device)
        super().__init__(
            driver,
            ordinal,
            capacity,
            page_size,
            physical_limit=physical_limit,
            budget=budget,
            release_threshold=release_threshold,
            low_water=low_water,
            background=background,
        )
        self._spilled: dict[str, list[Spilled]] = {}
        self._suspending = threading.RLock()

    def stats(self) -> MemoryStats:
        """What the pool has now."""
        return MemoryStats(**self._stats())

    def compact(self, max_bytes: int | str | None = None, max_seconds: float | None = None) -> CompactionReport:
        """Move movable blocks together and give back the pages that become empty.

        Whole pages move by remapping; only parts of pages are copied. Blocks that are pinned, held, viewed, or used by
        a stream stay. `max_bytes` and `max_seconds` bound one call; the next one goes on. Owners learn of new places by
        their handles, and by `on_move`, which is called before this returns.
        """
        done, moved, failure = self._compact(max_bytes, max_seconds)
        raised = []
        for block, old, new in moved:
            if block is None or block.on_move is None:
                continue
            try:
                block.on_move(block, old, new)
            except Exception as error:
                raised.append(error)
        if failure is not None:
            raise failure
        if raised:
            raise errors.CallbackFailed(f"on_move raised {raised[0]!r} (raised in all: {len(raised)})") from raised[0]
        return CompactionReport(**done)

    def suspend(self, tag: str, contents: str = "main") -> int:
        """Give up the memory of everything that carries the tag, and keep its addresses; says how many bytes.

        The contents are kept in "main" memory, in a "file" without a name (or one in the folder given), or "drop"ped.
        Touching the addresses faults until `resume`. `StreamMisuse` while a stream uses any of it, `StillHeld` while a
        view does; then nothing has changed.
        """
        with self._suspending:
            places = self._list_tagged(tag, False)
            if not places:
                return 0
            spilled = Spilled(places, contents)
            try:
                spilled.copy_out(self.driver, places)
                self._suspend(spilled.ids)
            except BaseException:
                spilled.close()
                raise
            self._spilled.setdefault(tag, []).append(spilled)
            return spilled.nbytes

    def resume(self, tag: str) -> int:
        """Put memory behind everything that carries the tag and was suspended, with its contents; says how many bytes.

        All of it or nothing. Every address is what it was; every block has a new `generation`.
        """
        with self._suspending:
            places = self._list_tagged(tag, True)
            self._resume([number for number, _, _ in places])
            for spilled in self._spilled.pop(tag, []):
                ours = set(spilled.ids)
                spilled.copy_in(self.driver, [place for place in places if place[0] in ours])
                spilled.close()
            return sum(size for _, _, size in places)
