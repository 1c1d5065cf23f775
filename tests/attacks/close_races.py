"""Owns: the attack by threads: several use an object while another one closes it, frees it or takes its memory away.

Each call works, or says that the thing is closed. Afterwards everything is back where it came from.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from random import Random

import tensormem as tm
from attacks.live_objects import MAKERS, new_path
from attacks.outcome import Leak, Outcome, Wrong
from attacks.suite import Note, Suite
from support.holdings import held
from tensormem import errors, mr, pools, streams

__all__ = ["SUITE"]

Step = Callable[[], object]
_ROUNDS = 12


def _pool() -> tuple[list[Step], Step]:
    pool = mr.PoolMemoryResource(mr.HostMemoryResource())
    blocks = [pool.allocate(4096) for _ in range(6)]
    steps: list[Step] = [lambda: pool.deallocate(blocks[0]), lambda: pool.deallocate(pool.allocate(100)), pool.trim]
    return steps, lambda: pool.deallocate(blocks[1])


def _tensor(memory: str) -> tuple[list[Step], Step]:
    tensor = tm.full((16, 16), 7, "int32", memory=memory)

    def look() -> None:
        with tensor.map("r") as mapped:
            if bytes(memoryview(mapped).cast("B")[:4]) != b"\7\0\0\0":
                raise Wrong("other bytes")

    return [look, tensor.tolist, lambda: tensor[3:].clone(), lambda: tensor.numpy().sum()], tensor.close


def _stream() -> tuple[list[Step], Step]:
    stream = streams.Stream(tm.drivers.host())
    event = streams.Event(tm.drivers.host())
    steps: list[Step] = [
        lambda: stream.launch(int),
        stream.synchronize,
        lambda: event.record(stream),
        lambda: stream.wait(event),
        lambda: event.done,
    ]
    return steps, stream.close


def _event() -> tuple[list[Step], Step]:
    stream = streams.Stream(tm.drivers.host())
    event = streams.Event(tm.drivers.host())
    return [
        lambda: event.record(stream),
        event.synchronize,
        lambda: event.done,
        lambda: stream.wait(event),
    ], event.close


def _pages() -> tuple[list[Step], Step]:
    pool = pools.VirtualMemoryPool("16MiB")
    kept = pool.allocate(size="2MiB")
    steps: list[Step] = [
        lambda: pool.deallocate(pool.allocate(size="2MiB")),
        lambda: pool.deallocate(kept),
        pool.stats,
        pool.trim,
        pool.compact,
    ]
    return steps, pool.close


def _cache() -> tuple[list[Step], Step]:
    cache = pools.BlockCache("4MiB", "64KiB")

    def use() -> None:
        blocks = cache.allocate(4)
        cache.deallocate(blocks)

    return [use, cache.stats, cache.trim, cache.compact], cache.close


def _ring() -> tuple[list[Step], Step]:
    ring = tm.FrameRing(3, 64)

    def write() -> None:
        with ring.write(timeout=0) as frame:
            frame.tensor.fill_(3)

    def read() -> None:
        with ring.read(timeout=0.01) as frame:
            if len(set(frame.tensor.tolist())) != 1:
                raise Wrong("a torn frame")

    return [write, read, ring.readers, lambda: ring.published], ring.close


def _channel() -> tuple[list[Step], Step]:
    here, there = tm.Channel.pair()
    tensor = tm.full(8, 7, "uint8", memory="shm")
    steps: list[Step] = [
        lambda: here.send(tensor, timeout=0.01),
        lambda: there.receive(timeout=0.01),
        lambda: there.receive(),
        lambda: there.send(tensor, timeout=0.01),
    ]

    def close() -> None:
        here.close()
        there.close()

    return steps, close


def _listener() -> tuple[list[Step], Step]:
    path = str(new_path())
    listener = tm.Channel.listen(path)
    return [lambda: listener.accept(), lambda: tm.Channel.connect(path, timeout=0.05).close()], listener.close


def _budget() -> tuple[list[Step], Step]:
    budget = pools.SharedBudget.create(8192, name="a", patience=0.01)

    def use() -> None:
        budget.claim(1024)
        budget.give_back(1024)

    return [use, budget.participants, lambda: budget.used_by_all], budget.close


def _manager() -> tuple[list[Step], Step]:
    manager = MAKERS["manager, mapped"]()
    size = 2**21

    def use() -> None:
        place, pages = manager.reserve(size, size), manager.alloc_physical(size)
        manager.map(place, pages, 0)
        manager.unmap(place, 0, size)
        manager.free_physical(pages)
        manager.release(place)

    return [use, manager.memory_info], manager.close


def _buffer() -> tuple[list[Step], Step]:
    buffer = MAKERS["buffer that grows"]()

    def look() -> None:
        bytes(memoryview(buffer)[:16])

    return [lambda: buffer.resize(2**16), lambda: buffer.resize(64), look, lambda: len(buffer)], buffer.close


def _recording() -> tuple[list[Step], Step]:
    recording = MAKERS["recording"]()
    recording.start()
    leaf = mr.HostMemoryResource()
    return [lambda: leaf.deallocate(leaf.allocate(64)), recording.flush, lambda: recording.report], recording.stop


def _trace() -> tuple[list[Step], Step]:
    trace = MAKERS["trace"]()
    return [lambda: list(trace.events()), trace.lifetimes, trace.peaks, lambda: trace.names], trace.close


_VICTIMS: dict[str, Callable[[], tuple[list[Step], Step]]] = {
    "pool": _pool,
    "tensor": lambda: _tensor("mem"),
    "shared tensor": lambda: _tensor("shm"),
    "stream": _stream,
    "event": _event,
    "pool of pages": _pages,
    "block cache": _cache,
    "ring": _ring,
    "channel": _channel,
    "listener": _listener,
    "shared budget": _budget,
    "manager": _manager,
    "buffer": _buffer,
    "recording": _recording,
    "trace": _trace,
}


def _race(draw: Random, steps: list[Step], close: Step) -> list[BaseException]:
    """Three threads use it, the fourth closes it; what none of them should have seen."""
    start = threading.Barrier(4)
    bad: list[BaseException] = []

    def run(todo: list[Step]) -> None:
        start.wait()
        for step in todo:
            try:
                step()
            except (errors.TensormemError, BufferError, ValueError, OSError) as error:
                if isinstance(error, errors.InternalError):
                    bad.append(error)
            except BaseException as error:
                bad.append(error)

    jobs = [[draw.choice(steps) for _ in range(_ROUNDS)] for _ in range(3)]
    # None of the steps before: those may wait until somebody closes.
    idle = draw.choice([0, 100, 10_000])
    jobs.append([lambda: sum(range(idle)), close, close])
    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return bad


def _case(draw: Random, note: Note) -> Outcome:
    name = draw.choice(list(_VICTIMS))
    note(name)
    steps, close = _VICTIMS[name]()
    bad = _race(draw, steps, close)
    if bad:
        raise Wrong(f"{name}: {bad[0]!r:.300}") from bad[0]
    return Outcome.FINE


_before: dict[str, int] = {}


def _begin() -> None:
    draw = Random(1)
    for make in _VICTIMS.values():
        _race(draw, *make())
    gc.collect()
    _before.update(held())


def _finish() -> None:
    gc.collect()
    after = held()
    grown = {name: count - _before[name] for name, count in after.items() if count > _before[name]}
    if grown:
        raise Leak(f"held after a batch: {grown}")


SUITE = Suite(
    "closing",
    "While threads use an object, another one closes it: each call works or says so, waits end, and nothing is left.",
    _case,
    share=0.02,
    batch=60,
    begin=_begin,
    finish=_finish,
)
