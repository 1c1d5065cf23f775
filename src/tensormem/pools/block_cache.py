"""Owns: the block cache of a driver found by name, its reports, and the news of moves.

Must not know: tensors and tenants; what is in a block.
"""

import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tensormem import _core, errors
from tensormem.pools.block_cache_stats import BlockCacheStats
from tensormem.pools.compaction_report import CompactionReport
from tensormem.pools.living import remember
from tensormem.pools.spilled import Spilled
from tensormem.vmm.manager import find_mapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["BlockCache"]


class BlockCache(_core.BlockCache):
    """Blocks of one size, such as those of a KV cache, packed into pages that have memory only while they are in use.

    A block has an id for its life, never used again, and an address that `compact` may change. Allocation fills the
    fullest pages first, so that others run empty; empty pages are kept up to `release_threshold` and then go back.
    With `demand_blocks`, as many of them are kept as were in use of late: what is kept sinks while blocks end, by about
    two thirds for so many. Whatever is kept goes at once when another cache of the budget asks.
    `physical_limit`, or a `budget` shared with others, bounds the memory. Blocks never straddle a frame, the one or few
    pages that are mapped together. `tensor` is one tensor over all slots, and `slots` says where blocks are in it. With
    `planes`, a block has a part of `block_size` in each of so many tensors, at the same slot: one for each layer, or
    for keys and for values. `on_move(ids, old_addresses, new_addresses)` is called after blocks moved, with arrays, and
    `on_remap(old_slots, new_slots)` with slots. Thread-safe.

    >>> import tensormem as tm
    >>> with tm.BlockCache("64GiB", block_size="256KiB") as cache:
    ...     ids = cache.allocate(64)
    ...     cache.deallocate(ids[4:])
    ...     with cache.view(ids[0]) as view:
    ...         view[:5] = b"hello"
    ...     cache.compact().finished, cache.stats().used_pages
    ...     cache.tensor("float16", (2, 16, 8, 128)).shape
    (True, 1)
    (262144, 2, 16, 8, 128)
    """

    def __init__(
        self,
        capacity: int | str,
        block_size: int | str,
        page_size: int | str = "2MiB",
        device: "WhereLike" = "main",
        *,
        physical_limit: int | str | None = None,
        budget: _core.Budget | None = None,
        release_threshold: int | str | None = "32MiB",
        low_water: int | str = 0,
        background: bool = False,
        planes: int = 1,
        demand_blocks: float = 0,
        on_move: "Callable[[array[int], array[int], array[int]], object] | None" = None,
        on_remap: "Callable[[array[int], array[int]], object] | None" = None,
    ) -> None:
        for name, function in (("on_move", on_move), ("on_remap", on_remap)):
            if function is not None and not callable(function):
                raise errors.InvalidArgument(f"{name} is a function")
        where = find_mapped(device)
        super().__init__(
            where.driver,
            where.ordinal,
            capacity,
            block_size,
            page_size,
            physical_limit=physical_limit,
            budget=budget,
            release_threshold=release_threshold,
            low_water=low_water,
            background=background,
            planes=planes,
            demand_blocks=demand_blocks,
        )
        self._on_move = on_move
        self._suspending = threading.RLock()
        self._spilled: tuple[Spilled, list[tuple[int, int]]] | None = None
        self._remap_listeners = [] if on_remap is None else [on_remap]
        remember(self)

    def stats(self) -> BlockCacheStats:
        """What the cache has now."""
        return BlockCacheStats(**self._stats())

    def compact(self, max_bytes: int | str | None = None, max_seconds: float | None = None) -> CompactionReport:
        """Copy blocks of the emptiest pages into holes of the fullest, until as few pages are left as can hold them.

        Ids stay, addresses change. Blocks that are pinned, viewed, or used by a stream stay where they are. `max_bytes`
        and `max_seconds` bound one call; the next one goes on. `on_move` is told before this returns.
        """
        done, ids, old, new, failure = self._compact(max_bytes, max_seconds)
        raised = self._tell(ids, old, new) if ids else None
        if failure is not None:
            raise failure
        if raised is not None:
            raise errors.CallbackFailed(f"{raised[0]} raised {raised[1]!r}") from raised[1]
        return CompactionReport(**done)

    def suspend(self, contents: str = "main") -> int:
        """Give up all memory between requests, and keep every block, slot and address; says how many bytes.

        The contents are kept in "main" memory, in a "file" without a name (or one in the folder given), or "drop"ped.
        Until `resume`, touching the memory faults, and calls that would change blocks are refused. `StillHeld` while a
        block is pinned or viewed, `StreamMisuse` while a stream uses one; then nothing has changed.
        """
        with self._suspending, self._used():
            places = self._begin_suspension()
            try:
                spilled = Spilled(places, contents, "suspended blocks")
            except BaseException:
                self._cancel_suspension()
                raise
            try:
                spilled.copy_out(self.driver)
            except BaseException:
                self._cancel_suspension()
                spilled.close()
                raise
            before = self.physical_memory_usage
            self._spilled = (spilled, places)
            self._drop_memory()
            return before - self.physical_memory_usage

    def resume(self) -> int:
        """Put memory behind the same addresses again, with the contents; says how many bytes. All of it or nothing."""
        with self._suspending, self._used():
            before = self.physical_memory_usage
            self._restore_memory()
            if self._spilled is not None:
                spilled, places = self._spilled
                spilled.copy_in(self.driver, places)
                spilled.close()
                self._spilled = None
            self._cancel_suspension()
            return self.physical_memory_usage - before

    def close(self, timeout: float | None = None) -> None:
        """Wait for the streams that use it, and give everything back, whatever is still in it.

        `TimedOut` when the streams take longer than `timeout` seconds, and `StillHeld`, a `BufferError`, while blocks
        are pinned or viewed, tensors or block tables use the cache, or calls of other threads are under way: then
        nothing is changed. Closing twice is harmless.
        """
        super().close(timeout)
        with self._suspending:
            if self._spilled is not None:
                self._spilled[0].close()
                self._spilled = None

    @contextmanager
    def _used(self) -> Iterator[None]:
        self._begin_use()
        try:
            yield
        finally:
            self._end_use()

    def _tell(self, ids: "array[int]", old: "array[int]", new: "array[int]") -> tuple[str, Exception] | None:
        """Tell all owners where blocks went, also when one of them raises; gives the first that did."""
        raised = None
        base, stride = self.base_address, self.block_stride
        if self._on_move is not None:
            addresses = [array("Q", (base + slot * stride for slot in slots)) for slots in (old, new)]
            try:
                self._on_move(ids, *addresses)
            except Exception as error:
                raised = ("on_move", error)
        for listener in tuple(self._remap_listeners):
            try:
                listener(old, new)
            except Exception as error:
                raised = raised or ("on_remap", error)
        return raised

    def _add_remap_listener(self, listener: "Callable[[array[int], array[int]], object]") -> None:
        self._remap_listeners.append(listener)

    def _remove_remap_listener(self, listener: "Callable[[array[int], array[int]], object]") -> None:
        self._remap_listeners.remove(listener)
