"""Pages that are kept: by a threshold, by recent demand; and handed over to another cache of the budget."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.holdings import nothing_left_behind
from tensormem import errors
from tensormem.pools import BlockCache, PhysicalLimit

PAGE = 64 << 10
BLOCK = 16 << 10  # four a page


def test_as_many_pages_are_kept_as_were_in_use_of_late() -> None:
    with BlockCache("4MiB", BLOCK, PAGE, release_threshold=None, demand_blocks=64) as cache:
        cache.deallocate(cache.allocate(40))
        # Of 40 blocks, 40 / 64 are forgotten; 15 take four pages.
        assert cache.physical_memory_usage == 4 * PAGE
        made = cache.stats().created_pages
        for _ in range(5):
            cache.deallocate(cache.allocate(12))
        assert cache.stats().created_pages == made


def test_what_is_kept_sinks_while_blocks_end() -> None:
    with BlockCache("4MiB", BLOCK, PAGE, release_threshold=None, demand_blocks=32) as cache:
        base = cache.allocate(1)
        cache.deallocate(cache.allocate(27))
        seen = [cache.physical_memory_usage // PAGE]
        for _ in range(200):
            cache.deallocate(cache.allocate(1))
            seen.append(cache.physical_memory_usage // PAGE)
        assert seen == sorted(seen, reverse=True)
        assert seen[0] > seen[-1] <= 2
        cache.deallocate(base)
        assert cache._is_valid()


def test_the_threshold_is_still_the_most_that_is_kept() -> None:
    with BlockCache("4MiB", BLOCK, PAGE, release_threshold=2 * PAGE, demand_blocks=1e6) as cache:
        cache.deallocate(cache.allocate(40))
        assert cache.physical_memory_usage == 2 * PAGE
        cache.set_release_threshold(None, 1e6)
        cache.deallocate(cache.allocate(40))
        assert cache.physical_memory_usage == 10 * PAGE
        cache.set_release_threshold(0)
        assert cache.physical_memory_usage == 0


@pytest.mark.parametrize("wrong", [-1, float("nan"), "many", None])
def test_a_window_that_is_not_a_number_of_blocks_is_refused(wrong: object) -> None:
    with pytest.raises(errors.InvalidArgument):
        BlockCache("4MiB", BLOCK, PAGE, demand_blocks=wrong)  # type: ignore[arg-type]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    with nothing_left_behind():
        yield


@pytest.mark.usefixtures("nothing_left")
def test_pages_that_another_cache_of_the_budget_needs_are_handed_over() -> None:
    budget = PhysicalLimit(10 * PAGE)
    idle, busy = (BlockCache("4MiB", BLOCK, PAGE, budget=budget, release_threshold=None) for _ in range(2))
    with idle, busy:
        idle.deallocate(idle.allocate(40))
        ids = busy.allocate(24)
        assert (busy.stats().created_pages, busy.physical_memory_usage) == (0, 6 * PAGE)
        assert (idle.physical_memory_usage, budget.used) == (4 * PAGE, 10 * PAGE)
        for number in ids:
            with busy.view(number) as view:
                view[:] = bytes(BLOCK)
        assert idle._is_valid() and busy._is_valid()
        busy.deallocate(ids)
        back = idle.allocate(40)
        assert idle.stats().created_pages == 10
        idle.deallocate(back)


@pytest.mark.usefixtures("nothing_left")
def test_pages_of_another_size_are_not_handed_over() -> None:
    budget = PhysicalLimit(16 * PAGE)
    small = BlockCache("4MiB", BLOCK, PAGE, budget=budget, release_threshold=None)
    large = BlockCache("4MiB", BLOCK, 4 * PAGE, budget=budget)
    with small, large:
        small.deallocate(small.allocate(64))
        large.allocate(16)
        assert large.stats().created_pages == 1
        assert budget.used == 16 * PAGE
