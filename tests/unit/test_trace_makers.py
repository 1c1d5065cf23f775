"""Every block of every maker begins once and ends once in a trace, whichever way the maker ends."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

import tensormem as tm
from tensormem.pools import BlockCache, TenantPool, VirtualMemoryPool
from tensormem.reports.live.pools import look_at_pools
from tensormem.trace import Lifetime, Trace, plan

MIB = 1 << 20


def _pool() -> VirtualMemoryPool:
    pool = VirtualMemoryPool("64MiB")
    pool.allocate(0, "2MiB", tag="weights")
    pool._kept = [pool.allocate(size="3MiB", tag="weights")]  # type: ignore[attr-defined]
    return pool


def _cache() -> BlockCache:
    cache = BlockCache("64MiB", MIB)
    cache.allocate(2, tag="weights")
    with tm.tag("weights"):
        cache.allocate(3)
    return cache


def _tenants() -> TenantPool:
    models = TenantPool("64MiB")
    chat = models.register("chat", "1GiB")
    chat._kept = [chat.allocate("5MiB", tag="weights")]  # type: ignore[attr-defined]
    return models


def _buffer() -> tm.GrowableBuffer:
    buffer = tm.GrowableBuffer("64MiB", tag="weights")
    buffer.resize("2MiB")
    buffer.resize("6MiB")
    buffer.resize("4MiB")
    return buffer


MAKERS: dict[str, tuple[Callable[[], object], int]] = {
    "pool": (_pool, 5 * MIB),
    "cache": (_cache, 5 * MIB),
    "tenants": (_tenants, 5 * MIB),
    "buffer": (_buffer, 6 * MIB),
}


def _check(trace: Trace, peak: int) -> None:
    lives = list(trace.blocks())
    assert lives and all(life.start_ns is not None and life.end_ns is not None for life in lives)
    assert len({(life.resource, life.generation) for life in lives}) == len(lives)
    assert {life.tag for life in lives} == {"weights"} and {life.space for life in lives} == {"main"}
    assert trace.peaks()["main"].nbytes == peak


@pytest.mark.parametrize("name", MAKERS)
def test_closing_a_maker_ends_its_blocks(name: str, tmp_path: Path) -> None:
    make, peak = MAKERS[name]
    with tm.trace(tmp_path / "run.tmt"):
        made = make()
        made.close()  # type: ignore[attr-defined]
        made.close()  # type: ignore[attr-defined]
    with tm.trace.open(tmp_path / "run.tmt") as trace:
        _check(trace, peak)


@pytest.mark.parametrize("name", MAKERS)
def test_a_maker_that_is_collected_ends_its_blocks(name: str, tmp_path: Path) -> None:
    make, peak = MAKERS[name]
    with tm.trace(tmp_path / "run.tmt"):
        made = make()
        del made
        gc.collect()
    with tm.trace.open(tmp_path / "run.tmt") as trace:
        _check(trace, peak)


def test_a_planned_resource_counts_once_and_in_the_space_of_its_upstream(tmp_path: Path) -> None:
    made = plan([Lifetime("a", 0, 2, MIB), Lifetime("b", 1, 3, MIB)], time_limit=1)
    with tm.trace(tmp_path / "run.tmt"):
        upstream = tm.mr.PinnedMemoryResource()
        mr = tm.mr.PlannedMemoryResource(made, upstream)
        blocks = [mr.allocate(MIB), mr.allocate(MIB), mr.allocate(MIB // 2)]
        for block in blocks:
            mr.deallocate(block)
        del mr, block, blocks
        gc.collect()
    with tm.trace.open(tmp_path / "run.tmt") as trace:
        lives = list(trace.blocks())
        assert [life.nbytes for life in lives] == [MIB, MIB, MIB // 2]
        assert {life.space for life in lives} == {"pinned"}
        assert all(life.end_ns is not None for life in lives)
        assert {space: peak.nbytes for space, peak in trace.peaks().items() if space} == {"pinned": 5 * MIB // 2}


def test_a_growable_buffer_is_among_the_living_pools_and_counts_in_its_budget() -> None:
    limit = tm.pools.PhysicalLimit(8 * MIB)
    with tm.GrowableBuffer("64MiB", "3MiB", budget=limit) as buffer:
        (figures,) = [each for each in look_at_pools() if each.name == "GrowableBuffer"]
        assert (figures.used_bytes, figures.reserved_bytes, figures.space) == (3 * MIB, buffer.capacity, "main")
        assert limit.used == buffer.capacity == 4 * MIB
        with pytest.raises(tm.errors.OutOfPhysicalMemory):
            buffer.resize("9MiB")
        assert (len(buffer), limit.used) == (3 * MIB, 4 * MIB)
        with VirtualMemoryPool("64MiB", budget=limit) as pool:
            pool.deallocate(pool.allocate(size="4MiB"))
            buffer.resize("8MiB")  # the idle pages of the pool
        buffer.resize(0)
        assert limit.used == 0 and buffer.peak == 8 * MIB
    assert not [each for each in look_at_pools() if each.name == "GrowableBuffer"]
    buffer = tm.GrowableBuffer("64MiB", "3MiB", budget=limit)
    del buffer
    gc.collect()
    assert limit.used == 0
