"""Block caches: batches of blocks, their ids, and everything that is refused."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy
import pytest

from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.pools import BlockCache, PhysicalLimit, VirtualMemoryPool

KIB = 1 << 10
PAGE = 64 * KIB
BLOCK = 16 * KIB  # four a page


@pytest.fixture
def cache() -> Iterator[BlockCache]:
    with nothing_left_behind():
        with BlockCache("4MiB", BLOCK, PAGE, release_threshold=0) as made:
            yield made
            assert made._is_valid()
        del made


# --- Batches ---


def test_a_new_cache_has_addresses_and_no_memory() -> None:
    with BlockCache("128GiB", "256KiB") as large:
        assert large.capacity == 128 << 30
        assert large.physical_memory_usage == 0
        assert large.stats().capacity_blocks == 128 << 12
        assert large.stats().fragmentation == 0


def test_a_batch_is_an_array_of_ids_and_its_blocks_lie_side_by_side(cache: BlockCache) -> None:
    ids = cache.allocate(9)
    assert isinstance(ids, array)
    assert ids.typecode == "q"
    places = cache.addresses(ids)
    assert [place - cache.base_address for place in places] == [BLOCK * i for i in range(9)]
    assert cache.physical_memory_usage == 3 * PAGE
    assert cache.address(ids[8]) == places[8]


@pytest.mark.parametrize(
    "kind",
    [list, tuple, iter, numpy.array, memoryview, lambda ids: numpy.repeat(ids, 2)[::2], lambda ids: ids],
    ids=["list", "tuple", "iterator", "numpy", "memoryview", "strided", "array"],
)
def test_ids_are_taken_from_any_sequence_or_buffer(cache: BlockCache, kind: type) -> None:
    ids = cache.allocate(4)
    assert len(cache.addresses(kind(ids))) == 4
    cache.deallocate(kind(ids))
    assert cache.stats().live_blocks == 0


def test_no_blocks_are_a_batch_too(cache: BlockCache) -> None:
    assert len(cache.allocate(0)) == 0
    cache.deallocate([])
    cache.pin(array("q"))
    assert cache.stats().total_allocated == 0


def test_ids_stay_and_come_never_again(cache: BlockCache) -> None:
    seen: set[int] = set()
    for _ in range(50):
        ids = cache.allocate(8)
        assert seen.isdisjoint(ids)
        seen.update(ids)
        cache.deallocate(ids)
    assert all(number not in cache for number in seen)


def test_the_fullest_page_is_filled_first(cache: BlockCache) -> None:
    ids = cache.allocate(12)
    cache.deallocate([ids[0], ids[1], ids[2], ids[5], ids[8], ids[9]])
    page_of = {(cache.address(number) - cache.base_address) // PAGE for number in cache.allocate(1)}
    assert page_of == {1}
    assert {(cache.address(number) - cache.base_address) // PAGE for number in cache.allocate(2)} == {2}


def test_empty_pages_are_kept_up_to_the_threshold_and_trimmed() -> None:
    with BlockCache("4MiB", BLOCK, PAGE, release_threshold=2 * PAGE) as cache:
        ids = cache.allocate(16)
        cache.deallocate(ids)
        assert cache.physical_memory_usage == 2 * PAGE
        assert cache.stats().cached_pages == 2
        assert cache.trim(PAGE) == PAGE
        assert cache.trim() == PAGE
        assert cache.physical_memory_usage == 0
        cache.set_release_threshold(None)
        cache.deallocate(cache.allocate(16))
        assert cache.physical_memory_usage == 4 * PAGE
        cache.set_release_threshold(0)
        assert cache.physical_memory_usage == 0


def test_pages_are_made_ahead(cache: BlockCache) -> None:
    with BlockCache("4MiB", BLOCK, PAGE, low_water=3 * PAGE) as ahead:
        assert ahead.step_ahead() == 3 * PAGE
        before = ahead.stats().created_pages
        ahead.allocate(12)
        assert ahead.stats().created_pages == before == 3
        assert ahead.step_ahead(PAGE) == PAGE


# --- Refusals ---


def test_stale_double_and_foreign_ids_are_refused_and_nothing_changes(cache: BlockCache) -> None:
    ids = cache.allocate(8)
    cache.deallocate(ids[:1])
    for bad, kind in (
        ([ids[1], ids[0]], errors.UseAfterFree),
        ([ids[1], ids[2], ids[1]], errors.UseAfterFree),
        ([ids[1], 12345], errors.ForeignBlock),
        ([ids[1], -1], errors.ForeignBlock),
    ):
        with pytest.raises(kind) as caught:
            cache.deallocate(bad)
        assert getattr(caught.value, "generation") in {number % 2**64 for number in bad}  # noqa: B009
        assert cache.stats().live_blocks == 7
    for call in (cache.addresses, cache.pin, cache.unpin):
        with pytest.raises(errors.UseAfterFree):
            call([ids[1], ids[0]])
    with pytest.raises(errors.UseAfterFree):
        cache.address(ids[0])
    with pytest.raises(errors.UseAfterFree):
        cache.view(ids[0])


def test_an_id_of_another_cache_is_foreign(cache: BlockCache) -> None:
    mine = cache.allocate(1)
    with BlockCache("4MiB", BLOCK, PAGE) as other:
        theirs = other.allocate(1)
        with pytest.raises(errors.ForeignBlock):
            cache.deallocate(theirs)
        assert theirs[0] not in cache
    assert mine[0] in cache


@pytest.mark.parametrize("bad", [7, None, "ab", [1.5], [2**64], ["x"], numpy.array([1.5])])
def test_what_are_no_ids_is_refused(cache: BlockCache, bad: object) -> None:
    with pytest.raises(errors.InvalidArgument):
        cache.deallocate(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1, 1.5, "4", None])
def test_what_is_no_number_of_blocks_is_refused(cache: BlockCache, bad: object) -> None:
    with pytest.raises(errors.InvalidArgument):
        cache.allocate(bad)  # type: ignore[arg-type]
    assert cache.physical_memory_usage == 0


def test_more_blocks_than_addresses_are_refused_whole(cache: BlockCache) -> None:
    with pytest.raises(errors.OutOfVirtualMemory) as caught:
        cache.allocate(257)
    assert caught.value.requested == 257 * BLOCK
    with pytest.raises(errors.OutOfVirtualMemory):
        cache.allocate(10**30)
    cache.allocate(200)
    with pytest.raises(errors.OutOfVirtualMemory):
        cache.allocate(57)
    assert cache.stats().live_blocks == 200


def test_the_physical_limit_refuses_a_batch_whole_with_the_facts() -> None:
    with BlockCache("4MiB", BLOCK, PAGE, physical_limit=2 * PAGE) as cache:
        cache.allocate(5)
        with pytest.raises(errors.OutOfPhysicalMemory) as caught:
            cache.allocate(4)
        assert (caught.value.requested, caught.value.available) == (PAGE, 0)
        assert cache.stats().live_blocks == 5
        cache.physical_limit = 3 * PAGE
        cache.allocate(4)
        assert cache.physical_limit == 3 * PAGE


def test_caches_and_pools_share_one_budget() -> None:
    limit = PhysicalLimit(4 * PAGE)
    with (
        BlockCache("4MiB", BLOCK, PAGE, budget=limit, release_threshold=0) as one,
        VirtualMemoryPool("4MiB", PAGE, budget=limit, release_threshold=0) as pool,
    ):
        ids = one.allocate(8)
        pool.allocate(0, 2 * PAGE)
        with pytest.raises(errors.OutOfPhysicalMemory):
            one.allocate(1)
        with pytest.raises(errors.InvalidArgument):
            one.physical_limit = 1
        one.deallocate(ids)
        pool.allocate(2 * PAGE, 2 * PAGE)
        assert limit.used == 4 * PAGE
    assert limit.used == 0


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"capacity": 0}, errors.InvalidSize),
        ({"block_size": 0}, errors.InvalidSize),
        ({"block_size": "8MiB"}, errors.InvalidSize),
        ({"page_size": 100_000}, errors.InvalidPageSize),
        ({"page_size": 4096}, errors.InvalidPageSize),
        ({"capacity": "4EiB", "block_size": 1}, errors.InvalidSize),
        ({"budget": 5}, errors.InvalidArgument),
        ({"budget": PhysicalLimit(1), "physical_limit": 1}, errors.InvalidArgument),
        ({"on_move": 3}, errors.InvalidArgument),
    ],
)
def test_a_wrong_option_is_refused_at_once(changed: dict[str, object], kind: type[Exception]) -> None:
    given: dict[str, object] = {"capacity": "4MiB", "block_size": BLOCK, "page_size": PAGE, **changed}
    with nothing_left_behind(), pytest.raises(kind):
        BlockCache(**given)  # type: ignore[arg-type]
