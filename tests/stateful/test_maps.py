"""Maps, exports and closing in any order, against a model of three numbers."""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

import tensormem as tm
from support.bracketed import Bracketed
from tensormem import errors

MODES = st.sampled_from(["r", "w", "rw"])


class Maps(RuleBasedStateMachine):
    """The owner's log must add up: every begin one end, unplanned ones shared by mode, release last and once."""

    maps = Bundle("maps")
    map_views = Bundle("map_views")
    plain_views = Bundle("plain_views")

    def __init__(self) -> None:
        super().__init__()
        self.owner = Bracketed(32)
        self.tensor = tm.Tensor(self.owner.storage(), "uint8", 32)
        self.open_maps: Counter[str] = Counter()
        self.plain: Counter[str] = Counter()
        self.views_of: Counter[int] = Counter()
        self.closed = False

    @rule(target=maps, mode=MODES, start=st.integers(0, 31))
    def map(self, mode: str, start: int) -> Any:
        if self.closed:
            try:
                self.tensor[start:].map(mode)
            except errors.UseAfterFree:
                return None
            raise AssertionError("a closed storage was mapped")
        self.open_maps[mode] += 1
        return self.tensor[start:].map(mode)

    @rule(mapped=maps)
    def unmap(self, mapped: Any) -> None:
        if mapped is None:
            return
        try:
            was = mapped.mapped
            mapped.unmap()
        except BufferError:
            assert was and self.views_of[id(mapped)] > 0
            return
        assert self.views_of[id(mapped)] == 0 and not mapped.mapped
        self.open_maps[mapped.mode] -= was

    @rule(target=map_views, mapped=maps)
    def export_map(self, mapped: Any) -> Any:
        if mapped is None:
            return None
        try:
            view = memoryview(mapped)
        except BufferError:
            assert not mapped.mapped
            return None
        assert mapped.mapped and view.readonly == (mapped.mode == "r")
        self.views_of[id(mapped)] += 1
        return mapped, view

    @rule(held=consumes(map_views))
    def release_map_view(self, held: Any) -> None:
        if held is not None:
            mapped, view = held
            view.release()
            self.views_of[id(mapped)] -= 1

    @rule(target=plain_views, readonly=st.booleans())
    def export_plainly(self, readonly: bool) -> Any:
        try:
            view = memoryview(self.tensor.as_readonly() if readonly else self.tensor)
        except errors.UseAfterFree:
            assert self.closed
            return None
        self.plain["r" if readonly else "rw"] += 1
        return view, "r" if readonly else "rw"

    @rule(held=consumes(plain_views))
    def release_plain_view(self, held: Any) -> None:
        if held is not None:
            view, mode = held
            view.release()
            self.plain[mode] -= 1

    @rule()
    def close(self) -> None:
        busy = self.open_maps.total() + self.plain.total()
        try:
            self.tensor.close()
        except BufferError:
            assert busy > 0 and not self.closed
            return
        assert self.closed or busy == 0
        self.closed = True

    @invariant()
    def the_owner_was_told_of_what_is_open_and_nothing_else(self) -> None:
        told = Counter(self.owner.log)
        for mode in ("r", "w", "rw"):
            unplanned = self.plain[mode] > 0
            assert told[f"begin {mode}"] - told[f"end {mode}"] == self.open_maps[mode] + unplanned
        assert told["release"] == self.closed
        assert not self.closed or self.owner.log[-1] == "release"
        assert self.tensor.storage.export_count == self.open_maps.total() + self.plain.total()


TestMaps = Maps.TestCase
TestMaps.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
