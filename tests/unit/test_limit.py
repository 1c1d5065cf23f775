"""`tm.limit`: a scope in which memory of every kind counts. That each maker is charged, tests/crossings asks."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

import tensormem as tm
from tensormem import errors


def test_nested_limits_are_both_charged_and_the_smaller_one_refuses() -> None:
    with tm.limit("1MiB") as outer:
        first = tm.zeros(1000, "uint8")
        with tm.limit(500) as inner:
            second = tm.zeros(400, "uint8", memory="shm")
            assert (outer.used, inner.used) == (1400, 400)
            with pytest.raises(errors.OutOfBudget) as refused:
                tm.zeros(101, "uint8")
            assert (refused.value.remaining, refused.value.limit) == (100, 500)
            assert (outer.used, inner.used) == (1400, 400)
        third = tm.zeros(600, "uint8")
        assert (outer.used, inner.used) == (2000, 400)
    for tensor in (first, second, third):
        tensor.close()
    assert (outer.used, inner.used, outer.peak_bytes, inner.peak_bytes) == (0, 0, 2000, 400)


def test_memory_counts_until_it_ends_also_outside_and_not_what_was_made_outside() -> None:
    before = tm.zeros(100, "uint8")
    with tm.limit() as limit:
        inside = tm.zeros(200, "uint8")
    after = tm.zeros(300, "uint8")
    assert limit.used == 200
    before.close()
    after.close()
    assert limit.used == 200
    del inside
    assert limit.used == 0
    assert (limit.total_bytes, limit.total_count) == (200, 1)


def test_a_named_resource_is_not_charged() -> None:
    mr = tm.mr.HostMemoryResource()
    with tm.limit(100) as limit:
        block = mr.allocate(1000)
        tensor = tm.zeros(1000, "uint8", mr=mr)
    assert limit.used == 0
    tensor.close()
    mr.deallocate(block)


def test_a_resource_in_force_inside_is_charged_and_one_around_too() -> None:
    mr = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    with tm.limit() as limit, tm.use_resource(mr):
        inside = tm.zeros(100, "uint8")
    with tm.use_resource(mr), tm.limit() as around:
        other = tm.zeros(100, "uint8")
    assert (limit.used, around.used, mr.bytes_outstanding) == (100, 100, 200)
    inside.close()
    other.close()
    assert (limit.used, around.used) == (0, 0)


def test_a_limit_of_one_space_leaves_the_others_alone() -> None:
    with tm.limit(10, space="pinned") as limit:
        tensor = tm.zeros(1000, "uint8")
        with pytest.raises(errors.OutOfBudget):
            tm.zeros(11, "uint8", space="pinned")
        pinned = tm.zeros(10, "uint8", space="pinned")
    assert limit.used == 10
    tensor.close()
    pinned.close()


def test_it_is_of_one_thread_and_of_one_task() -> None:
    made: list[tm.Tensor] = []

    async def task(nbytes: int) -> int:
        with tm.limit() as limit:
            await asyncio.sleep(0)
            made.append(tm.zeros(nbytes, "uint8"))
            await asyncio.sleep(0)
            return limit.used

    async def both() -> list[int]:
        return list(await asyncio.gather(task(100), task(200)))

    with tm.limit() as around:
        thread = threading.Thread(target=lambda: made.append(tm.zeros(300, "uint8")))
        thread.start()
        thread.join()
        assert around.used == 0
        assert asyncio.run(both()) == [100, 200]
        assert around.used == 300
    made.clear()
    gc.collect()
    assert around.used == 0


def test_it_can_be_entered_again_and_inside_itself() -> None:
    with tm.limit(1000) as limit:
        first = tm.zeros(100, "uint8")
        with limit:
            second = tm.zeros(100, "uint8")
        assert limit.used == 200, "one limit is charged once"
    with limit:
        third = tm.zeros(100, "uint8")
    assert limit.used == 300
    for tensor in (first, second, third):
        tensor.close()
    assert limit.used == 0


def test_it_can_be_changed_and_refuses_until_enough_is_free() -> None:
    with tm.limit(1000) as limit:
        tensor = tm.zeros(800, "uint8")
        limit.limit = 500
        assert limit.remaining == 0
        with pytest.raises(errors.OutOfBudget):
            tm.zeros(1, "uint8")
        tensor.close()
        tm.zeros(500, "uint8").close()
        limit.limit = None
        tm.zeros(5000, "uint8").close()
        assert limit.remaining is None


def test_ending_what_never_began_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="not in force"):
        tm.limit(10).__exit__(None, None, None)


def test_a_bad_size_is_refused_at_once() -> None:
    for bad in ("12 potatoes", -1, 1.5):
        with pytest.raises(errors.InvalidArgument):
            tm.limit(bad)  # type: ignore[arg-type]


def test_a_pool_made_before_is_not_charged_and_one_made_inside_is_also_later() -> None:
    with tm.VirtualMemoryPool("16MiB") as before:
        with tm.limit() as limit:
            inside = tm.VirtualMemoryPool("16MiB")
            before.allocate(0, "2MiB")
            assert limit.used == 0
        inside.allocate(0, "2MiB")
        assert limit.used == inside.physical_memory_usage == 2 << 20
        inside.close()
        assert limit.used == 0


def test_many_threads_that_share_a_limit_leave_nothing_charged() -> None:
    limit = tm.limit("64KiB")

    def work() -> None:
        with limit:
            for step in range(200):
                try:
                    tm.zeros(4096 + step, "uint8", memory="shm" if step % 3 else "mem").close()
                except errors.OutOfBudget:
                    continue

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert limit.used == 0
    assert limit.peak_bytes <= 64 << 10
