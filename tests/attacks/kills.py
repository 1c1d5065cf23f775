"""Owns: the attack by kill -9, at a random moment, of a process that shares memory with this one: budgets, rings,
channels, shared tensors, recordings. What is left is whole, and everything that the dead held comes back.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from random import Random

import tensormem as tm
from attacks.live_objects import new_path
from attacks.outcome import Leak, Outcome, Wrong
from attacks.suite import Note, Suite
from support.holdings import open_descriptors
from support.ring_peers import forked
from tensormem import errors, mr, pools

__all__ = ["SUITE"]

_LIMIT = 10_000
# A recording is written this often by default, and by the clock of a machine under load.
_MOST_LOST_SECONDS = 5.0


@contextlib.contextmanager
def _killed(draw: Random, body: Callable[[], object], ready: Callable[[], bool]) -> Iterator[None]:
    """Runs `body` in a child, kills it some time after `ready`, and goes on when it is gone."""
    pid = forked(body)
    try:
        end = time.monotonic() + 20
        while not ready() and time.monotonic() < end:
            time.sleep(0.0005)
        time.sleep(draw.choice([0, 0.0002, 0.001, 0.005, 0.02]) * draw.random())  # the random moment
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    yield


def _budget(draw: Random) -> None:
    with pools.SharedBudget.create(_LIMIT, name="parent", patience=5) as budget:
        seed = draw.random()

        def churn() -> None:
            mine = Random(seed)
            joined = pools.SharedBudget.attach(budget.fd, name="child", guaranteed=100, patience=0)
            while True:
                nbytes = mine.randrange(1, _LIMIT)
                with contextlib.suppress(errors.TensormemError):
                    joined.claim(nbytes)
                    if mine.random() < 0.8:
                        joined.give_back(nbytes)

        with _killed(draw, churn, lambda: len(budget.participants()) > 1):
            budget.claim(_LIMIT)
            names = [each.name for each in budget.participants()]
            if names != ["parent"] or budget.used_by_all != _LIMIT:
                raise Wrong(f"after the kill {names} use {budget.used_by_all}")
            budget.give_back(_LIMIT)


def _ring_writer(draw: Random) -> None:
    how = {"mode": draw.choice(["latest", "every"]), "when_full": draw.choice(["wait", "drop", "overwrite"])}
    with tm.FrameRing(3, (64, 64), "uint8", **how) as ring:
        reader = ring.as_readonly()
        reader.attach_reader()

        def write() -> None:
            while True:
                with contextlib.suppress(errors.TimedOut), ring.write(timeout=0.001) as frame:
                    frame.tensor.fill_(os.getpid() % 100)

        with reader, _killed(draw, write, lambda: ring.published > 0):
            _read_all(reader)
            with ring.write(timeout=20) as frame:
                frame.tensor.fill_(5)
            _read_all(reader)


def _read_all(reader: tm.FrameRing) -> None:
    for _ in range(4):
        try:
            with reader.read(timeout=0) as frame:
                if len(set(bytes(memoryview(frame.numpy()).cast("B")))) != 1:
                    raise Wrong(f"frame {frame.number} is torn")
        except errors.TensormemError:
            return


def _ring_reader(draw: Random) -> None:
    with tm.FrameRing(2, 64, "uint8", mode="every", when_full="wait") as ring:

        def read() -> None:
            ring.attach_reader()
            while True:
                with contextlib.suppress(errors.TimedOut), ring.read(timeout=0.001) as frame:
                    frame.tensor.tolist()

        with ring.write(timeout=1) as frame:
            frame.tensor.fill_(1)
        with _killed(draw, read, lambda: bool(ring.readers())):
            for _ in range(5):  # more than there is room for: the dead reader's frames come back
                with ring.write(timeout=20) as frame:
                    frame.tensor.fill_(2)


def _channel(draw: Random) -> None:
    here, there = tm.Channel.pair()

    def talk() -> None:
        here.close()
        tensor = tm.full(1000, 7, "uint8", memory="shm")
        while True:
            there.send(tensor)
            there.receive(timeout=10).close()

    pid = forked(talk)
    there.close()
    try:
        for _ in range(draw.randrange(1, 4)):
            seen = here.receive(timeout=20)
            if set(bytes(memoryview(seen.numpy()))) != {7}:
                raise Wrong("other bytes")
            here.send(seen, timeout=20)
        time.sleep(draw.random() * 0.002)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with here:
        for _ in range(100):
            try:
                here.receive(timeout=20).close()
            except errors.ChannelClosed:
                return
    raise Wrong("the end of the other side is not heard")


def _recording(draw: Random) -> None:
    path = new_path(".tmt")

    def record() -> None:
        leaf = mr.HostMemoryResource()
        with tm.trace(path, flush_interval=0.01):
            while True:
                leaf.deallocate(leaf.allocate(64, tag="step"))
                time.sleep(0.0002)

    killed_at = 0.0
    with _killed(draw, record, lambda: path.exists() and path.stat().st_size > 64):
        killed_at = time.time()
    with tm.trace.open(path) as trace:
        events = list(trace.events())
        if trace.complete:
            raise Wrong("a recording that was cut off says that it is complete")
        last = (trace.wall_ns or 0) / 1e9 + (events[-1].time_ns / 1e9 if events else 0)
        if killed_at - last > _MOST_LOST_SECONDS:
            raise Wrong(f"{killed_at - last:.2f} s of the recording are lost")
    path.unlink()


def _tensor(draw: Random) -> None:
    tensor = tm.full(100_000, 3, "uint8", memory="shm")
    told, tell = os.pipe()

    def write() -> None:
        tensor.fill_(4)
        os.write(tell, b"x")
        while True:
            tensor.fill_(draw.randrange(256))

    pid = forked(write)
    try:
        os.read(told, 1)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(told)
        os.close(tell)
    tensor.fill_(9)
    if set(bytes(memoryview(tensor.numpy()))) != {9}:
        raise Wrong("other bytes")


_VICTIMS = [_budget, _ring_writer, _ring_reader, _channel, _recording, _tensor]


def _case(draw: Random, note: Note) -> Outcome:
    attack = draw.choice(_VICTIMS)
    note(attack.__name__)
    try:
        attack(draw)
    except errors.TensormemError as error:
        raise Wrong(f"{attack.__name__}: {error!r:.300}") from error
    return Outcome.FINE


_before = 0


def _begin() -> None:
    global _before
    for attack in _VICTIMS:
        with contextlib.suppress(Wrong):
            attack(Random(1))
    _before = open_descriptors()


def _finish() -> None:
    gc.collect()
    after = open_descriptors()
    if after > _before:
        raise Leak(f"{after - _before} descriptors")


SUITE = Suite(
    "kills",
    "Kill -9 at any moment: budgets return the share of the dead, frames are whole, a new writer goes on, channels say "
    "that the other end is gone, and a recording is readable up to its last flush.",
    _case,
    share=0.002,
    batch=30,
    begin=_begin,
    finish=_finish,
)
