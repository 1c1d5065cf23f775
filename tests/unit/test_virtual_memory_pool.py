"""Elastic pools on the host: views, the kernel's own counters, and what the machine refuses."""

import ctypes
import errno
import gc
import os
import threading
from collections.abc import Callable

import numpy as np
import pytest

import tensormem as tm
from support.holdings import nothing_left_behind
from support.residency import resident_bytes
from support.waiting import eventually
from tensormem import errors
from tensormem.pools import PoolBlock, VirtualMemoryPool
from tensormem.pools.spilled import Spilled

PAGE = 2 << 20
MIB = 1 << 20


def test_a_view_pins_its_block_and_nothing_dangles() -> None:
    with VirtualMemoryPool(64 * PAGE) as pool:
        block = pool.allocate(size=1000, movable=True, tag="model")
        array = np.frombuffer(memoryview(block), dtype=np.uint8)
        array[:] = 7
        for call in (
            lambda: pool.deallocate(block),
            lambda: pool.shrink(block, 10),
            lambda: pool.suspend("model"),
            pool.close,
        ):
            with pytest.raises(errors.StillHeld):
                call()
        assert isinstance(errors.StillHeld(0, 1), BufferError)
        address = block.address
        pool.compact()
        assert block.address == address and int(array.sum()) == 7000
        del array


def test_a_view_keeps_a_block_that_nobody_else_does() -> None:
    with VirtualMemoryPool(64 * PAGE) as pool:
        array = np.frombuffer(memoryview(pool.allocate(size=1000)), dtype=np.uint8)
        array[:] = 7
        gc.collect()
        assert int(array.sum()) == 7000
        del array
        gc.collect()
        assert pool.stats().live_blocks == 0


def test_a_suspended_block_has_no_view() -> None:
    with VirtualMemoryPool(64 * PAGE) as pool:
        block = pool.allocate(size=1000, tag="model")
        pool.suspend("model")
        with pytest.raises(BufferError):
            memoryview(block)
        pool.resume("model")
        assert len(memoryview(block)) == 1000


def test_resident_memory_is_what_the_pool_says() -> None:
    with VirtualMemoryPool("8GiB", release_threshold=0) as pool:
        pool.allocate("4GiB", 32 * PAGE)
        np.ctypeslib.as_array((ctypes.c_uint8 * (32 * PAGE)).from_address(pool.base_address + 2**32))[:] = 1
        assert resident_bytes(pool.base_address, 2**33) == 32 * PAGE == pool.physical_memory_usage
        pool.deallocate("4GiB", 32 * PAGE)
        assert (resident_bytes(pool.base_address, 2**33), pool.physical_memory_usage) == (0, 0)


def test_a_full_disk_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with VirtualMemoryPool(64 * PAGE) as pool:
        block = pool.allocate(size=1000, tag="model")
        monkeypatch.setattr(os, "posix_fallocate", refuse)
        with nothing_left_behind(), pytest.raises(errors.DriverError) as caught:
            pool.suspend("model", "file")
        assert (caught.value.code, caught.value.name, block.suspended) == (errno.ENOSPC, "ENOSPC", False)
        monkeypatch.undo()
        assert pool.suspend("model", "file") == 1000


def test_a_copy_that_fails_leaves_memory_suspended_with_its_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise errors.DriverError(errno.EIO, "EIO", "planned")

    with VirtualMemoryPool(64 * PAGE) as pool:
        block = pool.allocate(size=1000, tag="model")
        np.frombuffer(memoryview(block), dtype=np.uint8)[:] = 9
        pool.suspend("model")
        monkeypatch.setattr(Spilled, "copy_in", refuse)
        with pytest.raises(errors.DriverError):
            pool.resume("model")
        assert block.suspended and pool._is_valid()
        monkeypatch.undo()
        pool.resume("model")
        assert set(bytes(memoryview(block))) == {9}
        monkeypatch.setattr(Spilled, "copy_out", refuse)
        with pytest.raises(errors.DriverError):
            pool.suspend("model")
        monkeypatch.undo()
        assert not block.suspended
        pool.deallocate(block)


def test_nothing_is_left_when_a_pool_closes_with_live_blocks() -> None:
    with nothing_left_behind():
        pool = VirtualMemoryPool(64 * PAGE, low_water=2 * PAGE, background=True)
        blocks = [pool.allocate(size=size, tag="model") for size in (10, PAGE, 3 * PAGE + 1)]
        pool.allocate(40 * PAGE, PAGE)
        pool.suspend("model", "file")
        pool.close()
        assert not any(block.live for block in blocks)
    with nothing_left_behind():
        pool = VirtualMemoryPool(64 * PAGE)
        block = pool.allocate(size=PAGE)
        del pool
        gc.collect()
        assert block.live  # it keeps its pool
        del block
        gc.collect()


def test_a_forked_child_can_end_the_pool_of_its_parent() -> None:
    with VirtualMemoryPool(64 * PAGE, low_water=2 * PAGE, background=True) as pool:
        block = pool.allocate(size=100)
        memoryview(block)[:] = b"p" * 100
        # Pages of the parent, made ahead, which the child must not hand out.
        eventually(lambda: pool.physical_memory_usage == 3 * PAGE, "no page was made ahead")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    pool.allocate(8 * PAGE, PAGE)
                except errors.TensormemError:
                    code = 0
                pool.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bytes(memoryview(block)) == b"p" * 100 and pool._is_valid()


def test_eight_threads_use_one_pool() -> None:
    broken: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine: list[tuple[PoolBlock, int]] = []
            for step in range(120):
                block = pool.allocate(size=(number * 977 + step * 7919) % (PAGE // 2) + 1, movable=True)
                with block.hold() as address:
                    np.ctypeslib.as_array((ctypes.c_uint8 * 1).from_address(address))[0] = number
                mine.append((block, number))
                if step % 3 == 0:
                    pool.deallocate(mine.pop(step % len(mine))[0])
                if step % 20 == number:
                    pool.compact(max_bytes=PAGE)
            for block, value in mine:
                assert memoryview(block)[0] == value
                pool.deallocate(block)
        except BaseException as error:
            broken.append(error)

    with VirtualMemoryPool(512 * PAGE, "64KiB") as pool:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert broken == [] and pool._is_valid() and pool.stats().live_blocks == 0


def test_contents_of_suspended_memory_are_charged_to_the_limit_and_given_back() -> None:
    with tm.VirtualMemoryPool("64MiB") as pool:
        block = pool.allocate(size=MIB, tag="weights")
        memoryview(block)[:4] = b"abcd"
        with tm.limit("8MiB") as limit:
            pool.suspend("weights")
            assert limit.used == MIB
        pool.resume("weights")
        assert limit.used == 0 and bytes(memoryview(block)[:4]) == b"abcd"
        with tm.limit("8MiB") as limit:
            pool.suspend("weights", "file")
            assert limit.used == 0  # a file is not memory


def test_a_suspension_without_room_for_the_contents_says_so_and_changes_nothing() -> None:
    with tm.VirtualMemoryPool("64MiB") as pool:
        block = pool.allocate(size=MIB, tag="weights")
        before = pool.stats()
        with tm.limit(MIB - 1), pytest.raises(tm.errors.OutOfBudget) as caught:
            pool.suspend("weights")
        assert caught.value.report().tag == "weights"
        with tm.use_resource(tm.mr.AbstractMemoryResource()), pytest.raises(tm.errors.Untouchable):
            pool.suspend("weights")
        assert pool.stats() == before and not block.suspended
        memoryview(block)[:1] = b"x"


@pytest.mark.parametrize("end", [tm.VirtualMemoryPool.close, lambda pool: None], ids=["closed", "dropped"])
def test_contents_end_with_their_pool(end: Callable[[tm.VirtualMemoryPool], None]) -> None:
    mr = tm.mr.StatisticsResourceAdaptor(tm.mr.HostMemoryResource())
    pool = tm.VirtualMemoryPool("64MiB")
    pool.allocate(0, PAGE, tag="weights")
    with tm.use_resource(mr):
        pool.suspend("weights")
    assert mr.bytes_outstanding == PAGE
    end(pool)
    del pool
    gc.collect()
    assert mr.bytes_outstanding == 0
