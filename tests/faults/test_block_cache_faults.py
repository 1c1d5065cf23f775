"""For every k the k-th system call fails while a block cache is used: nothing is half done, nothing leaks."""

import pytest

from support.holdings import nothing_left_behind
from tensormem.pools import BlockCache, PhysicalLimit
from tensormem.testing.faults import each_system_call_fails

PAGE = 64 << 10
BLOCK = 16 << 10


def use(cache: BlockCache) -> None:
    ids = cache.allocate(40)
    cache.deallocate([number for place, number in enumerate(ids) if place % 4])
    cache.compact()
    cache.deallocate(ids[::4])
    cache.trim()


@pytest.mark.parametrize("planes", [1, 3])
def test_every_failing_system_call_leaves_books_and_memory_in_order(planes: int) -> None:
    limit = PhysicalLimit("64MiB")
    runs = 0
    with nothing_left_behind():

        def scenario() -> None:
            kept = 2 * planes * PAGE
            with BlockCache("12MiB", BLOCK, PAGE, budget=limit, release_threshold=kept, planes=planes) as cache:
                try:
                    use(cache)
                finally:
                    assert cache._is_valid()
                    stats = cache.stats()
                    assert stats.physical_usage == (stats.used_pages + stats.cached_pages) * PAGE == limit.used

        for _ in each_system_call_fails(scenario):
            runs += 1
            assert limit.used == 0
    assert runs > 20


def test_a_refused_batch_leaves_the_cache_as_it_was() -> None:
    with nothing_left_behind(), BlockCache("4MiB", BLOCK, PAGE, release_threshold=0) as cache:
        ids = cache.allocate(6)

        def scenario() -> None:
            cache.deallocate(cache.allocate(30))

        for raised in each_system_call_fails(scenario):
            if raised is None:
                continue
            assert cache.stats().live_blocks == 6
            assert cache._is_valid()
            cache.trim()
            assert cache.physical_memory_usage == 2 * PAGE
        cache.deallocate(ids)
