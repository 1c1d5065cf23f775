"""A state machine against block tables: in whatever order calls come, sequences agree with a dictionary of lists."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tensormem import errors
from tensormem.pools import BlockCache, BlockTables

PAGE = 64 << 10
BLOCK = 16 << 10
TOKENS = 4
WORDS = st.lists(st.integers(0, 1), max_size=14)  # few different ones, so that prefixes meet


class BlockTablesMachine(RuleBasedStateMachine):
    """The model: the tokens of each sequence, which are written into its blocks, and what was told of them."""

    @initialize(planes=st.sampled_from([1, 2]), threshold=st.sampled_from([0, 2 * PAGE, None]))
    def open(self, planes: int, threshold: int | None) -> None:
        limit = 10 * planes * PAGE
        self.cache = BlockCache("4MiB", BLOCK, PAGE, physical_limit=limit, release_threshold=threshold, planes=planes)
        self.tables = BlockTables(self.cache, TOKENS)
        self.tensors = [
            self.cache.tensor("int64", (TOKENS, BLOCK // TOKENS // 8), plane=plane) for plane in range(planes)
        ]
        self.model: dict[int, list[int]] = {}
        self.gone: list[int] = []

    def write(self, sequence: int, start: int) -> None:
        words = self.model[sequence][start:]
        places = numpy.asarray(self.tables.token_slots([sequence], start, len(words)), "int64")
        for plane, tensor in enumerate(self.tensors):
            tensor.numpy()[places // TOKENS, places % TOKENS, 0] = numpy.asarray(words, "int64") + 10 * plane

    def read(self, sequence: int, plane: int) -> list[int]:
        places = numpy.asarray(self.tables.token_slots([sequence], 0, len(self.model[sequence])), "int64")
        found: list[int] = (self.tensors[plane].numpy()[places // TOKENS, places % TOKENS, 0] - 10 * plane).tolist()
        return found

    @rule(prompts=st.lists(WORDS, max_size=3), salt=st.integers(0, 1))
    def admit(self, prompts: list[list[int]], salt: int) -> None:
        words = [word for prompt in prompts for word in prompt]
        try:
            ids, matched = self.tables.admit(words, [len(prompt) for prompt in prompts], salt=salt)
        except errors.OutOfPhysicalMemory:
            return
        assert not set(ids) & {*self.model, *self.gone}
        for number, prompt, known in zip(ids, prompts, matched, strict=True):
            assert known % TOKENS == 0 and (known < len(prompt) or known == 0)
            self.model[number] = prompt
            assert self.read(number, 0)[:known] == prompt[:known]
            self.write(number, known)
            self.tables.commit([number], prompt[known:], len(prompt) - known)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), words=WORDS)
    def extend(self, data: st.DataObject, words: list[int]) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.model)), unique=True, max_size=3))
        try:
            self.tables.extend(chosen, len(words))
        except errors.OutOfPhysicalMemory:
            return
        for number in chosen:
            start = len(self.model[number])
            self.model[number] = self.model[number] + words
            self.write(number, start)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.model)), max_size=3))
        for number, twin in zip(chosen, self.tables.fork(chosen), strict=True):
            self.model[twin] = self.model[number]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.model)))
        length = data.draw(st.integers(0, len(self.model[number])))
        self.tables.truncate([number], length)
        self.model[number] = self.model[number][:length]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.model)), unique=True))
        self.tables.free(chosen)
        for number in chosen:
            del self.model[number]
        self.gone += chosen

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def use_after_free(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.gone))
        for call in (self.tables.fork, self.tables.free, self.tables.extend, self.tables.slots):
            with pytest.raises(errors.UseAfterFree):
                call([*self.model, number])

    @rule(count=st.integers(0, 5), pages=st.booleans())
    def evict(self, count: int, pages: bool) -> None:
        before = self.tables.stats()
        ended = self.tables.evict(nbytes=count * PAGE) if pages else self.tables.evict(count)
        after = self.tables.stats()
        assert before.resting_blocks - after.resting_blocks == ended == after.total_evicted - before.total_evicted

    @rule(most=st.sampled_from([None, 4 * BLOCK]))
    def pack(self, most: int | None) -> None:
        self.cache.compact(max_bytes=most)

    @invariant()
    def sequences_agree_with_the_model(self) -> None:
        if not hasattr(self, "tables"):
            return
        assert list(self.tables.lengths(sorted(self.model))) == [len(self.model[each]) for each in sorted(self.model)]
        for number, words in self.model.items():
            for plane in range(len(self.tensors)):
                assert self.read(number, plane) == words

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "tables"):
            return
        stats = self.tables.stats()
        assert self.tables._is_valid() and self.cache._is_valid()
        assert stats.sequences == len(self.model)
        assert stats.held_blocks + stats.resting_blocks == self.cache.stats().live_blocks

    def teardown(self) -> None:
        if not hasattr(self, "tables"):
            return
        self.tables.free(list(self.model))
        self.tables.close()
        assert self.cache.stats().live_blocks == 0
        for tensor in self.tensors:
            tensor.close()
        self.cache.close()


TestBlockTables = BlockTablesMachine.TestCase
TestBlockTables.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
