"""Threads that allocate, write, read and free blocks of one cache while another compacts it."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from tensormem.pools import BlockCache

PAGE = 64 << 10


def serve(cache: BlockCache, seed: int) -> None:
    source = random.Random(seed)
    mine: list[int] = []
    for _ in range(150):
        if len(mine) < 60:
            for number in cache.allocate(source.randrange(1, 20)):
                with cache.view(number) as view:
                    view[:8] = number.to_bytes(8, "little")
                mine.append(number)
        source.shuffle(mine)
        ended, mine = mine[: len(mine) // 2], mine[len(mine) // 2 :]
        for number in ended:
            with cache.view(number) as view:
                assert bytes(view[:8]) == number.to_bytes(8, "little")
        cache.deallocate(ended)
    cache.deallocate(mine)


def test_contents_survive_compaction_beside_them() -> None:
    done = Event()
    with BlockCache("64MiB", 16 << 10, PAGE, release_threshold=0) as cache, ThreadPoolExecutor(5) as threads:

        def pack() -> int:
            moved = 0
            while not done.is_set():
                moved += cache.compact(max_bytes="256KiB").blocks_moved
            return moved

        packer = threads.submit(pack)
        served = [threads.submit(serve, cache, seed) for seed in range(4)]
        try:
            for each in served:
                each.result()
        finally:
            done.set()
        assert packer.result() > 0
        assert cache._is_valid()
        assert (cache.stats().live_blocks, cache.physical_memory_usage) == (0, 0)
