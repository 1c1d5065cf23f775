"""Owns: packing a block cache in the background, between the steps of an engine, and the list of what moved.

Must not know: what a step does. The cache itself says which blocks cannot move.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from collections.abc import Iterator
from contextlib import contextmanager

from tensormem import errors
from tensormem.construction import constructed_once
from tensormem.pools.block_cache import BlockCache

__all__ = ["Defragmenter"]


class _Turns:
    """Whose turn it is: steps of the engine, or packing. The thread waits here without keeping its defragmenter."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.steps = 0  # under way
        self.packing = False
        self.wanted = False  # a step has ended since the cache was last looked at
        self.closed = False


def _run(turns: _Turns, owner: weakref.ref[Defragmenter]) -> None:
    while True:
        with turns.changed:
            turns.changed.wait_for(lambda: turns.closed or (turns.wanted and turns.steps == 0))
            if turns.closed:
                return
            turns.packing = True
        defragmenter = owner()
        more = defragmenter is not None and defragmenter._pack()
        del defragmenter
        with turns.changed:
            turns.packing = False
            turns.wanted = more
            turns.changed.notify_all()


@constructed_once
class Defragmenter:
    """A thread that packs a cache while its engine computes nothing, a bounded piece at a time.

    The engine puts each step into `with defragmenter.step() as remaps:`. Inside nothing moves; `remaps` are pairs of
    arrays, old slots and new ones, that moved since the step before, in order: apply them to what you keep of slots
    before anything else. A step waits for one piece of `max_bytes` at most. Packing begins when `fragmentation` of the
    used pages could be won.

    >>> with BlockCache("1GiB", "256KiB") as cache, Defragmenter(cache) as defragmenter:
    ...     with defragmenter.step() as remaps:
    ...         ids = cache.allocate(16)
    ...         cache.deallocate([number for place, number in enumerate(ids) if place % 4])
    ...     settled = defragmenter.settle()
    ...     with defragmenter.step() as remaps:
    ...         [(list(old), list(new)) for old, new in remaps], cache.stats().used_pages
    ([([8, 12], [7, 6])], 1)
    """

    def __init__(
        self,
        cache: BlockCache,
        *,
        max_bytes: int | str = "64MiB",
        max_seconds: float = 0.01,
        fragmentation: float = 0.1,
    ) -> None:
        if not 0 <= fragmentation <= 1:
            raise errors.InvalidArgument(f"fragmentation is a share from 0 to 1, not {fragmentation!r}")
        self.cache = cache
        self._limits = (max_bytes, max_seconds)
        self._fragmentation = fragmentation
        self._turns = _Turns()
        self._remaps: list[tuple[array[int], array[int]]] = []
        self.failure: Exception | None = None
        """What the last piece of packing failed with, or None. The next step tries again."""
        cache._add_remap_listener(self._note)
        self._thread = threading.Thread(
            target=_run, args=(self._turns, weakref.ref(self)), name="tensormem-defragmenter", daemon=True
        )
        self._thread.start()

    @contextmanager
    def step(self) -> Iterator[list[tuple[array[int], array[int]]]]:
        """While the body runs nothing moves. Gives what moved since the step before; steps may overlap."""
        turns = self._turns
        with turns.changed:
            if turns.closed:
                raise errors.UseAfterRelease(0, what="the defragmenter was closed")
            turns.steps += 1
            turns.changed.wait_for(lambda: not turns.packing)
            moved, self._remaps = self._remaps, []
        try:
            yield moved
        finally:
            with turns.changed:
                turns.steps -= 1
                turns.wanted = turns.wanted or turns.steps == 0
                turns.changed.notify_all()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until there is nothing to pack, or a step has begun; False if `timeout` seconds passed first."""
        turns = self._turns
        with turns.changed:
            return turns.changed.wait_for(
                lambda: turns.closed or turns.steps > 0 or not (turns.wanted or turns.packing), timeout
            )

    def close(self) -> None:
        """Stop the thread after the piece it is at. Closing twice is harmless."""
        if self._end():
            self._thread.join()
            self.cache._remove_remap_listener(self._note)

    def __del__(self) -> None:
        if "_turns" in self.__dict__:
            self._end()  # the thread does not keep it, and goes by itself

    def __enter__(self) -> Defragmenter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _end(self) -> bool:
        """Tell the thread to end; False if it was told before."""
        with self._turns.changed:
            was_closed, self._turns.closed = self._turns.closed, True
            self._turns.changed.notify_all()
        return not was_closed

    def _note(self, old: array[int], new: array[int]) -> None:
        with self._turns.changed:
            self._remaps.append((old, new))

    def _pack(self) -> bool:
        """One piece; whether there is more to do."""
        self.failure = None
        try:
            stats = self.cache.stats()
            if stats.fragmentation <= self._fragmentation:
                return False
            done = self.cache.compact(*self._limits)
        except Exception as error:
            self.failure = error
            return False
        return not done.finished and done.blocks_moved > 0
