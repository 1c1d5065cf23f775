"""Block tables: sequences in batches, shared prefixes, copies before writes, eviction, and what is refused."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy
import pytest

from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.pools import BlockCache, BlockTables, PhysicalLimit
from tensormem.testing import simulated_gpu

PAGE = 64 << 10
BLOCK = 16 << 10  # four a page
TOKENS = 4


@pytest.fixture
def tables() -> Iterator[BlockTables]:
    with nothing_left_behind():
        cache = BlockCache("4MiB", BLOCK, PAGE, physical_limit=16 * PAGE, release_threshold=0)
        with cache, BlockTables(cache, TOKENS) as made:
            yield made
            assert made._is_valid()
            assert made.stats().held_blocks + made.stats().resting_blocks == cache.stats().live_blocks
        del made, cache


def counters(tables: BlockTables) -> tuple[object, ...]:
    cache = tables.cache
    return (tables.stats(), cache._stats()["live_blocks"], cache.physical_memory_usage)


# --- Sequences ---


def test_a_sequence_has_as_many_blocks_as_its_tokens_need(tables: BlockTables) -> None:
    ids = tables.allocate([0, 1, 4, 9])
    assert list(tables.lengths(ids)) == [0, 1, 4, 9]
    assert [len(tables.blocks(each)) for each in ids] == [0, 1, 1, 3]
    tables.extend(ids, [0, 3, 1, 4])
    assert list(tables.lengths(ids)) == [0, 4, 5, 13]
    assert [len(tables.blocks(each)) for each in ids] == [0, 1, 2, 4]
    tables.truncate(ids, [0, 4, 4, 1])
    assert [len(tables.blocks(each)) for each in ids] == [0, 1, 1, 1]
    tables.free(ids)
    assert tables.stats()[:3] == (0, 0, 0)


def test_rows_of_slots_are_one_table(tables: BlockTables) -> None:
    ids = tables.allocate([9, 2])
    rows = tables.slots(ids)
    assert (rows.shape, rows.format) == ((2, 3), "i")
    assert numpy.asarray(rows).tolist() == [list(tables.cache.slots(tables.blocks(ids[0]))), [3, -1, -1]]
    wide = tables.slots(ids, "int64", width=5, fill=0)
    assert (wide.shape, wide.format) == ((2, 5), "q")
    with pytest.raises(errors.InvalidArgument):
        tables.slots(ids, width=2)
    assert tables.slots([]).tolist() == []


def test_tokens_are_found_where_their_block_lies(tables: BlockTables) -> None:
    ids = tables.allocate([6, 3])
    tables.extend(ids, 2)
    rows = numpy.asarray(tables.slots(ids))
    expected = [rows[0, at // TOKENS] * TOKENS + at % TOKENS for at in range(3, 8)] + [rows[1, 0] * TOKENS]
    assert list(tables.token_slots(ids, [3, 0], [5, 1])) == expected
    with pytest.raises(errors.InvalidArgument):
        tables.token_slots(ids, [3, 0], [6, 1])


def test_rows_of_slots_can_be_had_on_a_device() -> None:
    with (
        simulated_gpu(memory="256MiB"),
        BlockCache("64MiB", "64KiB", device="gpu:0") as cache,
        BlockTables(cache, TOKENS) as tables,
    ):
        ids = tables.allocate([9, 2])
        with tables.slots(ids, device="gpu:0") as rows:
            assert str(rows.space) == "gpu:0"
            assert rows.to("main").tolist() == tables.slots(ids).tolist()


# --- Sharing ---


def fill(tables: BlockTables, sequence: int, values: list[int], start: int = 0) -> None:
    tensor = tables.cache.tensor("int64", (TOKENS, BLOCK // TOKENS // 8))
    flat = tensor.numpy()
    for place, value in zip(tables.token_slots([sequence], start, len(values)), values, strict=True):
        flat[place // TOKENS, place % TOKENS] = value
    del flat
    tensor.close()


def read(tables: BlockTables, sequence: int) -> list[int]:
    tensor = tables.cache.tensor("int64", (TOKENS, BLOCK // TOKENS // 8))
    flat = tensor.numpy()
    found = [
        int(flat[at // TOKENS, at % TOKENS, 0]) for at in tables.token_slots([sequence], 0, len_of(tables, sequence))
    ]
    del flat
    tensor.close()
    return found


def len_of(tables: BlockTables, sequence: int) -> int:
    return tables.lengths([sequence])[0]


def test_twins_share_blocks_until_one_of_them_writes(tables: BlockTables) -> None:
    (first,) = tables.allocate([6])
    fill(tables, first, [1, 2, 3, 4, 5, 6])
    (twin,) = tables.fork([first])
    assert tables.blocks(twin) == tables.blocks(first)
    assert tables.stats().held_blocks == 2
    tables.extend([twin])
    fill(tables, twin, [70], 6)
    tables.extend([first])
    fill(tables, first, [7], 6)
    assert (tables.stats().held_blocks, tables.stats().total_copied) == (3, 1)
    assert tables.blocks(twin)[0] == tables.blocks(first)[0]
    assert read(tables, first) == [1, 2, 3, 4, 5, 6, 7]
    assert read(tables, twin) == [1, 2, 3, 4, 5, 6, 70]
    tables.free([first])
    assert read(tables, twin) == [1, 2, 3, 4, 5, 6, 70]


def test_of_twins_that_write_in_one_batch_the_last_keeps_the_block(tables: BlockTables) -> None:
    (first,) = tables.allocate([6])
    fill(tables, first, [1, 2, 3, 4, 5, 6])
    family = [first, *tables.fork([first, first])]
    tables.extend(family)
    assert tables.stats().total_copied == 2
    for place, each in enumerate(family):
        fill(tables, each, [100 + place], 6)
    assert [read(tables, each)[5:] for each in family] == [[6, 100], [6, 101], [6, 102]]


def test_a_full_last_block_is_not_copied(tables: BlockTables) -> None:
    (first,) = tables.allocate([8])
    (twin,) = tables.fork([first])
    tables.extend([twin])
    assert tables.stats().total_copied == 0


# --- Prefixes ---


def test_a_prompt_shares_the_full_blocks_of_an_earlier_one(tables: BlockTables) -> None:
    prompt = list(range(10))
    (first,), (none,) = tables.admit(prompt, [10])
    assert none == 0
    tables.commit([first], prompt, 10)
    (second, third), matched = tables.admit([*prompt[:8], 99, *prompt[:4], 5, 5, 5, 5, 5], [9, 9])
    assert list(matched) == [8, 4]
    assert tables.blocks(second)[:2] == tables.blocks(first)[:2]
    assert tables.blocks(third)[:1] == tables.blocks(first)[:1]
    assert tables.stats().hit_rate == pytest.approx(12 / 28)


def test_one_token_is_always_left_to_compute(tables: BlockTables) -> None:
    (first,), _ = tables.admit(range(8), [8])
    tables.commit([first], range(8), 8)
    _, matched = tables.admit(range(8), [8])
    assert list(matched) == [4]


def test_the_same_tokens_behind_others_or_with_another_salt_are_not_shared(tables: BlockTables) -> None:
    (first,), _ = tables.admit([1, 1, 1, 1, 2, 2, 2, 2, 0], [9], salt=7)
    tables.commit([first], [1, 1, 1, 1, 2, 2, 2, 2], 8)
    for tokens, salt in (([2, 2, 2, 2, 0], 7), ([1, 1, 1, 1, 0], 8)):
        assert tables.admit(tokens, [5], salt=salt)[1][0] == 0
    assert tables.admit([1, 1, 1, 1, 0], [5], salt=7)[1][0] == 4


def test_what_was_generated_is_found_as_well(tables: BlockTables) -> None:
    (first,), _ = tables.admit([1, 2], [2])
    tables.commit([first], [1, 2], 2)
    for token in (3, 4, 5):
        tables.extend([first])
        tables.commit([first], [token], 1)
    assert tables.admit([1, 2, 3, 4, 5, 6], [6])[1][0] == 4


def test_freed_blocks_rest_and_the_least_recently_used_end_first(tables: BlockTables) -> None:
    ids, _ = tables.admit([1, 1, 1, 1, 2, 2, 2, 2], [4, 4])
    tables.commit(ids, [1, 1, 1, 1, 2, 2, 2, 2], 4)
    tables.free(ids)
    assert tables.stats()[:3] == (0, 0, 2)
    (again,), (matched,) = tables.admit([1, 1, 1, 1, 0], [5])
    assert matched == 4
    tables.free([again])  # the first is now the most recently used
    assert tables.evict(1) == 1
    assert tables.admit([2, 2, 2, 2, 0], [5])[1][0] == 0
    assert tables.admit([1, 1, 1, 1, 0], [5])[1][0] == 4


def test_resting_blocks_make_room_before_a_shortage_is_told(tables: BlockTables) -> None:
    words = list(range(64 * TOKENS))
    (first,), _ = tables.admit(words, [len(words)])
    tables.commit([first], words, len(words))
    with pytest.raises(errors.OutOfPhysicalMemory):
        tables.allocate([1])
    tables.free([first])
    assert tables.stats().resting_blocks == 64
    (second,) = tables.allocate([10 * TOKENS])
    assert (tables.stats().resting_blocks, tables.stats().total_evicted) == (54, 10)
    # The end of the sequence went, its beginning is still there.
    assert tables.admit(words[: 50 * TOKENS], [50 * TOKENS])[1][0] == 49 * TOKENS
    tables.free([second])


def test_another_cache_of_the_budget_gets_the_memory_of_resting_blocks() -> None:
    budget = PhysicalLimit(16 * PAGE)
    idle, busy = (BlockCache("4MiB", BLOCK, PAGE, budget=budget) for _ in range(2))
    with idle, busy, BlockTables(idle, TOKENS) as tables:
        words = list(range(60 * TOKENS))
        (first,), _ = tables.admit(words, [len(words)])
        tables.commit([first], words, len(words))
        with pytest.raises(errors.OutOfPhysicalMemory):
            busy.allocate(9)
        tables.free([first])
        asked = busy.allocate(9)
        assert budget.used <= budget.limit
        assert tables.stats().resting_blocks == 60 - 8
        assert tables._is_valid() and idle._is_valid()
        busy.deallocate(asked)


def test_eviction_by_pages_prefers_blocks_that_empty_a_page(tables: BlockTables) -> None:
    words = list(range(9 * TOKENS))
    (first,), _ = tables.admit(words, [len(words)])
    tables.commit([first], words, len(words))
    (second,) = tables.allocate([TOKENS])  # beside the ninth block
    tables.free([first])
    before = tables.cache.physical_memory_usage
    assert tables.evict(nbytes=PAGE) == 4
    assert tables.cache.physical_memory_usage == before - PAGE
    assert tables.evict(nbytes="1MiB") == 4
    tables.free([second])


def test_a_block_that_is_written_again_is_not_found_by_what_it_had(tables: BlockTables) -> None:
    (first,), _ = tables.admit(range(8), [8])
    tables.commit([first], range(8), 8)
    tables.truncate([first], 6)
    tables.extend([first], 2)
    tables.commit([first], [60, 70], 2)
    assert tables.admit([*range(8), 0], [9])[1][0] == 4
    assert tables.admit([*range(6), 60, 70, 0], [9])[1][0] == 8


# --- Compaction ---


def test_sequences_keep_their_tokens_when_the_cache_is_packed(tables: BlockTables) -> None:
    ids = tables.allocate([16] * 4)
    for place, each in enumerate(ids):
        fill(tables, each, [100 * place + at for at in range(16)])
    tables.free(ids[::2])
    tables.truncate(ids[1::2], 5)
    tables.cache.compact()
    assert tables.cache.stats().used_pages == 1
    assert [read(tables, each) for each in ids[1::2]] == [[100 * place + at for at in range(5)] for place in (1, 3)]


# --- What is refused ---


def test_whatever_is_refused_changes_nothing(tables: BlockTables) -> None:
    ids = tables.allocate([5, 6])
    (gone,) = tables.allocate([3])
    tables.free([gone])
    with BlockCache("4MiB", BLOCK, PAGE) as other, BlockTables(other, TOKENS) as foreign_tables:
        foreign = foreign_tables.allocate([1])
        before = counters(tables)
        for call in (
            lambda bad: tables.fork([*ids, *bad]),
            lambda bad: tables.free([*ids, *bad]),
            lambda bad: tables.extend([*ids, *bad], 9),
            lambda bad: tables.truncate([*ids, *bad], 0),
            lambda bad: tables.commit([*ids, *bad], [1] * 3, 1),
            lambda bad: tables.lengths([*ids, *bad]),
            lambda bad: tables.slots([*ids, *bad]),
            lambda bad: tables.token_slots([*ids, *bad], 0, 1),
        ):
            with pytest.raises(errors.UseAfterFree, match="sequence was freed"):
                call([gone])
            with pytest.raises(errors.ForeignBlock, match="never gave out"):
                call(foreign)
        for twice in (tables.free, tables.extend):
            with pytest.raises(errors.UseAfterFree):
                twice([ids[0], ids[0]])
        assert counters(tables) == before
        assert gone not in tables and ids[0] in tables


@pytest.mark.parametrize(
    "call",
    [
        lambda tables, ids: tables.allocate([4, -1]),
        lambda tables, ids: tables.allocate([1 << 62]),
        lambda tables, ids: tables.extend(ids, -1),
        lambda tables, ids: tables.extend(ids, [1]),
        lambda tables, ids: tables.extend(ids, 1.5),
        lambda tables, ids: tables.truncate(ids, 7),
        lambda tables, ids: tables.commit(ids, [1] * 14, 7),
        lambda tables, ids: tables.commit(ids, [1, 2, 3], 1),
        lambda tables, ids: tables.admit([1, 2, 3], [2]),
        lambda tables, ids: tables.evict(),
        lambda tables, ids: tables.evict(1, nbytes=1),
        lambda tables, ids: tables.slots(ids, "float32"),
    ],
)
def test_wrong_numbers_are_refused_and_nothing_changes(tables: BlockTables, call: object) -> None:
    ids = tables.allocate([5, 6])
    before = counters(tables)
    with pytest.raises((errors.InvalidArgument, errors.OutOfVirtualMemory)):
        call(tables, ids)  # type: ignore[operator]
    assert counters(tables) == before


def test_a_batch_that_does_not_fit_takes_nothing(tables: BlockTables) -> None:
    ids = tables.allocate([100, 100])
    before = counters(tables)
    for call in (
        lambda: tables.extend(ids, [1, 500]),
        lambda: tables.allocate([1, 500]),
        lambda: tables.admit(range(501), [1, 500]),
    ):
        with pytest.raises(errors.OutOfPhysicalMemory):
            call()
        assert counters(tables) == before


def test_a_budget_below_what_is_used_refuses_growth_and_loses_nothing(tables: BlockTables) -> None:
    ids = tables.allocate([5])
    fill(tables, ids[0], [1, 2, 3, 4, 5])
    tables.cache.physical_limit = 0
    with pytest.raises(errors.OutOfPhysicalMemory):
        tables.allocate([40])
    assert read(tables, ids[0]) == [1, 2, 3, 4, 5]
    tables.cache.physical_limit = 16 * PAGE
    tables.extend(ids, 40)
    assert read(tables, ids[0])[:5] == [1, 2, 3, 4, 5]


def test_a_pinned_block_keeps_its_sequence(tables: BlockTables) -> None:
    ids = tables.allocate([5])
    before = counters(tables)
    with tables.cache.view(tables.blocks(ids[0])[1]):
        with pytest.raises(errors.StillHeld):
            tables.free(ids)
        with pytest.raises(errors.StillHeld):
            tables.truncate(ids, 1)
    assert counters(tables) == before
    tables.free(ids)


def test_a_cache_does_not_close_under_its_tables() -> None:
    cache = BlockCache("4MiB", BLOCK, PAGE)
    tables = BlockTables(cache, TOKENS)
    ids = tables.allocate([9])
    with pytest.raises(errors.StillHeld, match="tables"):
        cache.close()
    tables.close()
    tables.close()
    assert cache.stats().live_blocks == 0
    with pytest.raises(errors.UseAfterRelease):
        tables.free(ids)
    cache.close()
    for wrong in (0, -1, 1 << 40):
        with BlockCache("4MiB", BLOCK, PAGE) as other, pytest.raises(errors.InvalidArgument):
            BlockTables(other, wrong)


def test_ids_of_sequences_come_in_any_sequence_or_buffer(tables: BlockTables) -> None:
    ids = tables.allocate(numpy.array([3, 3, 3]))
    assert isinstance(ids, array)
    for kind in (list, tuple, iter, numpy.array, memoryview):
        assert list(tables.lengths(kind(ids))) == [3, 3, 3]
