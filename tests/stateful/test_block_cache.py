"""A state machine against a block cache: whatever order calls come in, books, bytes and memory agree with a model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tensormem import errors
from tensormem.pools import BlockCache

PAGE = 64 << 10
SIZES = st.sampled_from([16 << 10, 22 << 10, PAGE, PAGE + 512, 5000])
PAGES = 24


class BlockCacheMachine(RuleBasedStateMachine):
    """The model: the ids that live, what is written in each, and how often each is pinned."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: BlockCache | None = None
        self.contents: dict[int, bytes] = {}
        self.pins: dict[int, int] = {}
        self.gone: list[int] = []

    @property
    def made(self) -> BlockCache:
        assert self.cache is not None
        return self.cache

    @precondition(lambda self: self.cache is None)
    @rule(size=SIZES, threshold=st.sampled_from([0, 2 * PAGE, None]))
    def open(self, size: int, threshold: int | None) -> None:
        self.cache = BlockCache("8MiB", size, PAGE, physical_limit=PAGES * PAGE, release_threshold=threshold)

    @precondition(lambda self: self.cache is not None)
    @rule(count=st.integers(0, 40))
    def allocate(self, count: int) -> None:
        before = self.made.stats()
        try:
            ids = self.made.allocate(count)
        except errors.OutOfPhysicalMemory as refused:
            assert refused.requested > refused.available
            # Its idle pages went back to the limit before the refusal: they might have helped.
            after = self.made.stats()
            gone = (before.cached_pages - after.cached_pages) * PAGE
            assert gone >= 0 and before.physical_usage - after.physical_usage == gone
            same = before._replace(cached_pages=after.cached_pages, physical_usage=after.physical_usage)
            assert after[:13] == same[:13]
            return
        assert len(set(ids)) == count
        assert not set(ids) & {*self.contents, *self.gone}
        for number in ids:
            self.contents[number] = number.to_bytes(8, "little")
            with self.made.view(number) as view:
                view[-8:] = self.contents[number]

    @precondition(lambda self: self.contents)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.contents)), unique=True))
        if any(number in self.pins for number in ids):
            with pytest.raises(errors.StillHeld):
                self.made.deallocate(ids)
            return
        self.made.deallocate(ids)
        for number in ids:
            del self.contents[number]
        self.gone += ids

    @precondition(lambda self: self.contents)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.contents)))
        self.made.pin([number])
        self.pins[number] = self.pins.get(number, 0) + 1

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.pins)))
        self.made.unpin([number])
        self.pins[number] -= 1
        if not self.pins[number]:
            del self.pins[number]

    @precondition(lambda self: self.gone and self.contents)
    @rule(data=st.data())
    def free_a_stale_id_with_a_live_one(self, data: st.DataObject) -> None:
        live, stale = data.draw(st.sampled_from(sorted(self.contents))), data.draw(st.sampled_from(self.gone))
        with pytest.raises(errors.UseAfterFree):
            self.made.deallocate([live, stale])

    @precondition(lambda self: self.cache is not None)
    @rule(blocks=st.none() | st.integers(1, 5))
    def compact(self, blocks: int | None) -> None:
        held = {number: self.made.address(number) for number in self.pins}
        done = self.made.compact(max_bytes=None if blocks is None else blocks * self.made.block_size)
        assert blocks is None or done.blocks_moved <= blocks
        stats = self.made.stats()
        if done.finished and not self.pins:
            assert stats.used_pages == stats.floor_pages
        assert all(self.made.address(number) == place for number, place in held.items())

    @precondition(lambda self: self.cache is not None)
    @rule(pages=st.integers(0, 6))
    def follow_the_hints(self, pages: int) -> None:
        hints = self.made.eviction_hints(pages * PAGE)
        before = self.made.stats().used_pages
        self.made.deallocate(hints)
        for number in hints:
            del self.contents[number]
        self.gone += hints
        won = before - self.made.stats().used_pages
        assert won >= pages or not self.made.eviction_hints(1)

    @precondition(lambda self: self.cache is not None)
    @rule()
    def trim(self) -> None:
        self.made.trim()
        assert self.made.stats().cached_pages == 0

    @invariant()
    def books_agree(self) -> None:
        if self.cache is None:
            return
        stats = self.made.stats()
        assert self.made._is_valid()
        assert stats.live_blocks == len(self.contents)
        assert stats.pinned_blocks == len(self.pins)
        assert stats.floor_pages <= stats.used_pages
        assert stats.physical_usage == (stats.used_pages + stats.cached_pages) * PAGE <= PAGES * PAGE

    def teardown(self) -> None:
        if self.cache is None:
            return
        for number, kept in self.contents.items():
            with self.made.view(number) as view:
                assert bytes(view[-8:]) == kept
        for number, pins in self.pins.items():
            self.made.unpin([number] * pins)
        self.made.close()


TestBlockCache = BlockCacheMachine.TestCase
TestBlockCache.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
