"""Attacks on "in use": whoever lets the GIL go while it uses memory counts as a user, so nobody can close it then.

Each call is held open from within, by a gate; nothing here depends on time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import tensormem as tm
from tensormem._core import using
from tensormem.pools.spilled import Spilled
from tensormem.testing import simulated_gpu

MIB = 1 << 20


class Gate:
    """A number that a call asks for in the middle, and that is not told before `open`."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._entered, self._opened = threading.Event(), threading.Event()

    def __index__(self) -> int:
        self.wait()
        return self._number

    def wait(self, *_: object) -> None:
        self._entered.set()
        assert self._opened.wait(20)

    @contextmanager
    def hold(self, call: Callable[[], object]) -> Iterator[Future[Any]]:
        """While the body runs, another thread is inside `call`."""
        with ThreadPoolExecutor(1) as threads:
            under_way = threads.submit(call)
            try:
                assert self._entered.wait(20)
                yield under_way
            finally:
                self._opened.set()


def calls_on(driver: Any, memory: Any, gate: Gate) -> dict[str, Callable[[], object]]:
    """Every call of a driver that is given memory and lets the GIL go; each asks the gate for its pitch."""
    other = tm.empty(4096, "uint8")
    return {
        "copy to": lambda: driver.copy_pitched(memory, gate, other.ptr, 4096, (4096, 1, 1)),
        "copy from": lambda: driver.copy_pitched(other.ptr, gate, memory, 4096, (4096, 1, 1)),
        "fill": lambda: driver.fill(memory, 7, 1, (4096, 1, 1), pitch=gate),
    }


CALLS = ["copy to", "copy from", "fill"]


@pytest.mark.parametrize("call", CALLS)
def test_a_block_is_not_freed_under_a_call_of_a_driver(call: str) -> None:
    mr = tm.mr.HostMemoryResource()
    block, gate = mr.allocate(4096), Gate(4096)
    run = calls_on(tm.drivers.host(), block, gate)[call]
    with gate.hold(run) as under_way, pytest.raises(BufferError):
        mr.deallocate(block)
    under_way.result(20)
    mr.deallocate(block)
    with pytest.raises(tm.errors.UseAfterFree):
        run()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("vendor", ["cuda", "rocm"])
def test_a_block_of_a_gpu_is_not_freed_under_a_call_of_its_driver(vendor: str, call: str) -> None:
    with simulated_gpu(devices=1, memory="64MiB", vendor=vendor) as gpu:
        mr = tm.mr.GpuMemoryResource(f"{vendor}:0")
        block, gate = mr.allocate(4096), Gate(4096)
        with gate.hold(calls_on(gpu.drivers[0], block, gate)[call]) as under_way, pytest.raises(BufferError):
            mr.deallocate(block)
        under_way.result(20)
        mr.deallocate(block)


@pytest.mark.parametrize("call", CALLS)
def test_a_pools_block_is_not_taken_away_under_a_call_of_a_driver(call: str) -> None:
    with tm.VirtualMemoryPool("64MiB") as pool:
        block, gate = pool.allocate(size=4096), Gate(4096)
        with gate.hold(calls_on(tm.drivers.host(), block, gate)[call]) as under_way:
            refusals: list[Callable[[], object]] = [lambda: pool.deallocate(block), pool.close]
            for refused in refusals:
                with pytest.raises(BufferError):
                    refused()
        under_way.result(20)
        pool.deallocate(block)


@pytest.mark.parametrize("call", CALLS)
def test_addresses_are_not_unmapped_under_a_call_of_a_driver(call: str) -> None:
    with tm.VirtualMemoryManager() as vmm:
        va = vmm.reserve("4MiB")
        mapping = vmm.map(va, vmm.alloc_physical("2MiB"), 0, access="read_write")
        gate = Gate(4096)
        with gate.hold(calls_on(vmm.driver, va, gate)[call]) as under_way:
            for refused in (va.close, vmm.close, mapping.unmap, lambda: vmm.unmap(va), lambda: vmm.move(mapping, 0)):
                with pytest.raises(BufferError):
                    refused()
        under_way.result(20)
        assert mapping.is_live
        va.close()


def _storage(kind: str) -> tuple[Any, int, list[Callable[[], object]]]:
    tensor = tm.zeros(4096, "uint8", memory=kind)
    return tensor, tensor.ptr, [tensor.close, tensor.storage.close]


def _block() -> tuple[Any, int, list[Callable[[], object]]]:
    mr = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    block = mr.allocate(8192)
    return mr, int(block) + 4096, [lambda: mr.deallocate(block)]


def _pool_block() -> tuple[Any, int, list[Callable[[], object]]]:
    pool = tm.VirtualMemoryPool("64MiB")
    block = pool.allocate(size=8192, tag="weights")
    steps = [lambda: pool.deallocate(block), lambda: pool.shrink(block, 16), lambda: pool.suspend("weights")]
    return pool, block.address, [*steps, pool.close]


def _pool_place() -> tuple[Any, int, list[Callable[[], object]]]:
    pool = tm.VirtualMemoryPool("64MiB")
    address = pool.allocate(4 * MIB, 2 * MIB)
    return pool, address, [lambda: pool.deallocate(4 * MIB, 2 * MIB), pool.close]


def _cache_block() -> tuple[Any, int, list[Callable[[], object]]]:
    cache = tm.BlockCache("64MiB", block_size="64KiB")
    ids = cache.allocate(2)
    return cache, cache.addresses(ids)[1], [lambda: cache.deallocate(ids), cache.close]


def _range() -> tuple[Any, int, list[Callable[[], object]]]:
    vmm = tm.VirtualMemoryManager()
    va = vmm.reserve("4MiB")
    mapping = vmm.map(va, vmm.alloc_physical("2MiB"), 0, access="read_write")
    return vmm, va.base + 4096, [mapping.unmap, lambda: vmm.unmap(va), va.close, vmm.close]


def _growable() -> tuple[Any, int, list[Callable[[], object]]]:
    buffer = tm.GrowableBuffer("64MiB")
    buffer.resize(MIB)
    with memoryview(buffer) as view:
        address = tm.wrap(view).ptr
    return buffer, address, [buffer.close]


NUMBERED: dict[str, Callable[[], tuple[Any, int, list[Callable[[], object]]]]] = {
    "a tensor": lambda: _storage("mem"),
    "shared memory": lambda: _storage("shm"),
    "a block": _block,
    "a block of a pool": _pool_block,
    "a place of a pool": _pool_place,
    "a block of a cache": _cache_block,
    "a range of addresses": _range,
    "a buffer": _growable,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("make", NUMBERED.values(), ids=NUMBERED)
def test_memory_that_a_call_was_given_by_number_is_not_taken_away_under_it(make: Callable[[], Any], call: str) -> None:
    keep, address, refused = make()
    gate = Gate(4096)
    with gate.hold(calls_on(tm.drivers.host(), address, gate)[call]) as under_way:
        for end in refused:
            with pytest.raises(BufferError):
                end()
    under_way.result(20)
    for end in refused[-1:]:
        end()
    del keep


def test_numbers_count_as_far_as_the_call_reaches_and_not_beyond() -> None:
    mr = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    blocks = sorted((mr.allocate(4096) for _ in range(3)), key=int)
    gate = Gate(7)  # a value is asked for when the shape and the pitch are known
    driver: Any = tm.drivers.host()
    run = partial(driver.fill, int(blocks[0]), gate, 1, (4096, 2, 1), pitch=int(blocks[1]) - int(blocks[0]))
    with gate.hold(run) as under_way:
        for block in blocks[:2]:
            with pytest.raises(BufferError):
                mr.deallocate(block)
        mr.deallocate(blocks[2])
    under_way.result(20)
    for block in blocks[:2]:
        mr.deallocate(block)


def test_a_compaction_leaves_a_block_whose_address_a_call_was_given() -> None:
    with tm.VirtualMemoryPool("64MiB") as pool:
        blocks = [pool.allocate(size=2 * MIB, movable=True) for _ in range(4)]
        pool.deallocate(blocks[0])
        gate, address = Gate(4096), blocks[3].address
        with gate.hold(calls_on(tm.drivers.host(), address, gate)["fill"]) as under_way:
            pool.compact()
            assert blocks[3].address == address
        under_way.result(20)


def test_a_forked_child_is_not_held_up_by_numbers_of_its_parents_threads() -> None:
    tensor, gate = tm.zeros(4096, "uint8"), Gate(4096)
    with gate.hold(calls_on(tm.drivers.host(), tensor.ptr, gate)["fill"]) as under_way:
        child = os.fork()
        if child == 0:
            try:
                tensor.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(BufferError):
            tensor.close()
    under_way.result(20)


def test_a_refused_call_of_a_driver_uses_nothing_afterwards() -> None:
    mr = tm.mr.HostMemoryResource()
    block = mr.allocate(4096)
    with pytest.raises(tm.errors.InvalidArgument):
        tm.drivers.host().copy(block, 0, 4096)
    with pytest.raises(tm.errors.InvalidArgument):
        tm.drivers.host().copy_pitched(block, "no pitch", block, 1, (1, 1, 1))
    assert block.export_count == 0
    mr.deallocate(block)


def test_the_cpu_is_refused_memory_that_it_cannot_touch() -> None:
    host = tm.drivers.host()
    abstract = tm.mr.AbstractMemoryResource().allocate(4096)
    calls: list[Callable[[], object]] = [
        lambda: host.fill(abstract, 7, 1, (4096, 1, 1)),
        lambda: host.copy(abstract, abstract, 4096),
        lambda: tm.zeros(2),
        lambda: tm.full(2, 1),
        lambda: tm.empty(2).fill_(1),
        lambda: tm.empty(2).clone(),
    ]
    with tm.use_resource(tm.mr.AbstractMemoryResource()):
        for call in calls:
            with pytest.raises(tm.errors.Untouchable):
                call()
    with simulated_gpu(devices=1, memory="64MiB"), tm.VirtualMemoryPool("64MiB", device="cuda:0") as pool:
        far = tm.mr.GpuMemoryResource("cuda:0").allocate(4096)
        with tm.VirtualMemoryManager("cuda:0") as vmm:
            for memory in (far, pool.allocate(size=4096), vmm.reserve("4MiB")):
                with pytest.raises(tm.errors.InvalidArgument, match="the CPU cannot touch"):
                    host.fill(memory, 7, 1, (4096, 1, 1))
        assert far.export_count == 0


@pytest.mark.parametrize("contents", ["main", "file"])
def test_a_pool_is_not_closed_while_another_thread_suspends_or_resumes(
    contents: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = tm.VirtualMemoryPool("64MiB")
    pool.allocate(0, 2 * MIB, tag="weights")
    for step, call in (
        ("copy_out", lambda: pool.suspend("weights", contents)),
        ("copy_in", lambda: pool.resume("weights")),
    ):
        gate, done = Gate(), getattr(Spilled, step)

        def slowly(self: Spilled, *facts: Any, gate: Gate = gate, done: Any = done) -> None:
            gate.wait()
            done(self, *facts)

        monkeypatch.setattr(Spilled, step, slowly)
        with gate.hold(call) as under_way, pytest.raises(BufferError, match="calls of other threads"):
            pool.close()
        assert under_way.result(20) == 2 * MIB and not pool.closed
    pool.close()
    pool.close()


def test_a_pool_is_not_closed_while_another_thread_waits_for_pages() -> None:
    gate = Gate()
    with tm.TenantPool("4MiB") as models:
        idle = models.register("idle", "64MiB", on_pressure=gate.wait)
        busy = models.register("busy", "64MiB")
        idle.pool.allocate(0, 4 * MIB)
        with gate.hold(lambda: busy.pool.allocate(0, 2 * MIB)) as under_way, pytest.raises(BufferError):
            busy.pool.close()
        assert isinstance(under_way.exception(20), MemoryError)


def test_a_cache_is_not_closed_while_another_thread_waits_for_pages() -> None:
    gate = Gate()
    with tm.TenantPool("4MiB") as models:
        idle = models.register("idle", "64MiB", on_pressure=gate.wait)
        idle.pool.allocate(0, 4 * MIB)
        busy = models.register("busy", "64MiB")
        with tm.BlockCache("64MiB", block_size="64KiB", budget=busy.pool.budget) as cache:
            with gate.hold(lambda: cache.allocate(1)) as under_way, pytest.raises(BufferError):
                cache.close()
            assert isinstance(under_way.exception(20), MemoryError)


def test_a_buffer_is_not_closed_while_another_thread_resizes_it() -> None:
    gate = Gate()
    with tm.TenantPool("4MiB") as models:
        idle = models.register("idle", "64MiB", on_pressure=gate.wait)
        idle.pool.allocate(0, 4 * MIB)
        busy = models.register("busy", "64MiB")
        buffer = tm.GrowableBuffer("64MiB", budget=busy.pool.budget)
        with gate.hold(lambda: buffer.resize(2 * MIB)) as under_way, pytest.raises(BufferError, match="resized"):
            buffer.close()
        assert isinstance(under_way.exception(20), MemoryError)
        buffer.close()


def test_a_frame_is_not_published_while_an_operation_writes_it() -> None:
    with tm.FrameRing(2, 4096) as ring:
        frame = ring.write()
        with using(frame.tensor.storage):
            for refused in (frame.publish, frame.abandon, frame.tensor.close):
                with pytest.raises(BufferError):
                    refused()
        frame.tensor.fill_(7)
        held = frame.numpy()  # a view is the writer's own affair
        assert frame.publish() == 1
        with ring.read(timeout=5) as seen:
            assert seen.tensor.tolist() == held.tolist() == [7] * 4096


def test_a_frame_whose_writer_failed_under_an_operation_is_given_up_when_it_is_dropped() -> None:
    with tm.FrameRing(2, 4096) as ring:
        frame = ring.write()
        storage = frame.tensor.storage
        with using(storage):
            with pytest.raises(KeyError), frame:
                raise KeyError
            with pytest.raises(tm.errors.RingBusy):
                ring.write()
        del frame
        ring.write().publish()
        assert ring.published == 1
