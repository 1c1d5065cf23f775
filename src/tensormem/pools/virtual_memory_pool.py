"""Owns: the elastic pool of a driver found by name, its reports, and suspension with contents.

Must not know: tensors and tenants.
"""

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tensormem import _core, errors
from tensormem.pools.compaction_report import CompactionReport
from tensormem.pools.living import remember
from tensormem.pools.memory_stats import MemoryStats
from tensormem.pools.spilled import Spilled
from tensormem.vmm.manager import find_mapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

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
        device: "WhereLike" = "main",
        *,
        physical_limit: int | str | None = None,
        budget: _core.Budget | None = None,
        release_threshold: int | str | None = "256MiB",
        low_water: int | str = 0,
        background: bool = False,
    ) -> None:
        where = find_mapped(device)
        super().__init__(
            where.driver,
            where.ordinal,
            capacity,
            page_size,
            physical_limit=physical_limit,
            budget=budget,
            release_threshold=release_threshold,
            low_water=low_water,
            background=background,
        )
        self._spilled: dict[int, Spilled] = {}  # by the number of the suspension
        self._suspensions = itertools.count(1)
        self._suspending = threading.RLock()
        self._moving = threading.RLock()
        self._untold: deque[tuple[_core.PoolBlock | None, int, int]] = deque()
        remember(self)

    def stats(self) -> MemoryStats:
        """What the pool has now."""
        return MemoryStats(**self._stats())

    def compact(self, max_bytes: int | str | None = None, max_seconds: float | None = None) -> CompactionReport:
        """Move movable blocks together and give back the pages that become empty.

        Whole pages move by remapping; only parts of pages are copied. Blocks that are pinned, held, viewed, or used by
        a stream stay. `max_bytes` and `max_seconds` bound one call; the next one goes on. Owners learn of new places by
        their handles, and by `on_move`, which is called before this returns.
        """
        with self._moving:
            done, moved, failure = self._compact(max_bytes, max_seconds)
            raised = self._tell_owners(moved)
        if failure is not None:
            raise failure
        _raise_callback_failure(raised)
        return CompactionReport(**done)

    def grow(self, block: _core.PoolBlock, size: int | str) -> None:
        """Make a block larger, in place where there is room; a movable one may move, with its contents."""
        with self._moving:
            super().grow(block, size)

    def _tell_owners(self, moved: list[tuple[_core.PoolBlock | None, int, int]]) -> list[BaseException]:
        # First in, first out, also when an owner compacts again while it is told: nobody hears of moves in another
        # order than they happened. One owner's failure does not keep the news from the others.
        raised: list[BaseException] = []
        self._untold.extend(moved)
        while self._untold:
            block, old, new = self._untold.popleft()
            if block is None or block.on_move is None:
                continue
            try:
                block.on_move(block, old, new)
            except BaseException as error:
                raised.append(error)
        return raised

    def suspend(self, tag: str, contents: str = "main") -> int:
        """Give up the memory of everything that carries the tag, and keep its addresses; says how many bytes.

        The contents are kept in "main" memory, in a "file" without a name (or one in the folder given), or "drop"ped.
        Main memory for them comes from the current resource, under the same tag, and limits in force count it.
        Touching the addresses faults until `resume`. `StreamMisuse` while a stream uses any of it, `StillHeld` while a
        view does; then nothing has changed.
        """
        with self._suspending, self._used():
            self._forget_stale()
            places = self._hold_tagged(tag)
            ids = [number for number, *_ in places]
            try:
                spilled = Spilled([(address, size) for _, address, size, _ in places], contents, tag)
            except BaseException:
                self._let_go(ids)
                raise
            suspension = next(self._suspensions)
            try:
                spilled.copy_out(self.driver)
                self._suspend(ids, suspension)
            except BaseException:
                self._let_go(ids)
                spilled.close()
                raise
            self._spilled[suspension] = spilled
            return spilled.nbytes

    def resume(self, tag: str) -> int:
        """Put memory behind everything that carries the tag and was suspended, with its contents; says how many bytes.

        All of it or nothing. Every address is what it was; every block has a new `generation`.
        """
        with self._suspending, self._used():
            places = self._list_suspended(tag)
            ids = [number for number, *_ in places]
            self._resume(ids)
            try:
                for suspension in {number for *_, number in places}:
                    ours = [(address, size) for _, address, size, number in places if number == suspension]
                    self._spilled[suspension].copy_in(self.driver, ours)
            except BaseException:
                self._suspend(ids, 0)
                raise
            self._let_go(ids)
            self._forget_stale()
            return sum(size for _, _, size, _ in places)

    def trim(self, keep_bytes: int | str = 0) -> int:
        """Give back the pages kept for reuse until at most `keep_bytes` of them are left; says how many bytes went.

        Contents that were kept for suspended blocks which are no more go as well.
        """
        gone = super().trim(keep_bytes)
        with self._suspending:
            self._forget_stale()
        return gone

    def close(self, timeout: float | None = None) -> None:
        """Wait for the streams that use it, and give everything back, whatever is still in it.

        `TimedOut` when the streams take longer than `timeout` seconds, and `StillHeld`, a `BufferError`, while views of
        blocks are in use or calls of other threads are under way: then nothing is changed. Closing twice is harmless.
        """
        super().close(timeout)
        with self._suspending:
            self._forget_stale()

    @contextmanager
    def _used(self) -> Iterator[None]:
        self._begin_use()
        try:
            yield
        finally:
            self._end_use()

    def _forget_stale(self) -> None:
        for suspension in list(self._spilled):
            if self.closed or not self._has_suspended(suspension):
                self._spilled.pop(suspension).close()


def _raise_callback_failure(raised: list[BaseException]) -> None:
    for error in raised:
        if not isinstance(error, Exception):
            raise error
    if raised:
        raise errors.CallbackFailed(f"on_move raised {raised[0]!r} (raised in all: {len(raised)})") from raised[0]
