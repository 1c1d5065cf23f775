"""Owns: the attack by damaged files: recordings, PyTorch snapshots, RMM logs, lifetimes, plans, and the files behind
shared budgets and frame rings. Checksums are made right again, so that the damage gets further in.

Reading ends in a named error or in a reading; nothing outside the file is touched, nothing is left open.
"""

from __future__ import annotations

import functools
import os
import pickle
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import tensormem as tm
from attacks.live_objects import new_path
from attacks.outcome import Leak, Outcome, Wrong
from attacks.suite import Note, Suite
from fuzz.fuzz_trace_reader import read_all
from support.holdings import open_descriptors
from support.traces import record_steps, with_checksums
from tensormem import errors, pools
from tensormem.trace.plan_file import load_plan

__all__ = ["SUITE", "damaged"]

_PATCHES = [
    b"\xff" * 8,
    bytes(8),
    b"\xff" * 4,
    b"\x01" + bytes(7),
    b"\x7f" + b"\xff" * 7,
    b"-1",
    b"9" * 30,
    b"\n",
    b",",
]


def damaged(draw: Random, sound: bytes) -> bytearray:
    """The same bytes with a few things wrong."""
    data = bytearray(sound)
    for _ in range(draw.choice([1, 1, 1, 2, 3, 6])):
        at = draw.randrange(len(data) + 1)
        change = draw.randrange(6)
        if change == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif change == 1 and at < len(data):
            data[at] = draw.randrange(256)
        elif change == 2:
            patch = draw.choice(_PATCHES)
            data[at : at + len(patch)] = patch
        elif change == 3 and draw.random() < 0.3:
            del data[at:]
        elif change == 4:
            other = draw.randrange(len(data) + 1)
            data[at:at] = data[other : other + draw.choice([1, 8, 64, 128])]
        else:
            del data[at : at + draw.choice([1, 4, 8, 64])]
    return data


@functools.cache
def _recording() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.tmt"
        record_steps(path, stacks=True)
        return path.read_bytes()


@functools.cache
def _snapshot() -> bytes:
    frames = [{"filename": "train.py", "line": 3, "name": "step"}]
    rows: list[dict[str, Any]] = []
    for number in range(6):
        common = {"addr": 4096 * number, "size": 512, "stream": 0, "time_us": 10 + number, "frames": frames}
        rows += [{"action": "alloc", **common}, {"action": "free_completed", **common, "time_us": 40 + number}]
    blocks = [{"size": 512, "state": "active_allocated", "address": 1 << 20, "frames": frames}]
    segments = [{"device": 0, "address": 1 << 20, "total_size": 512, "blocks": blocks}]
    return pickle.dumps({"device_traces": [rows], "segments": segments})


_RMM = b"Thread,Time,Action,Pointer,Size,Stream\n" + b"".join(
    b"%d,10:00:%02d:%06d,%s,0x%x,%d,0x0\n" % (7, n % 60, n, b"allocate" if n % 3 else b"free", 4096 * (n % 5), 64 * n)
    for n in range(20)
)
_LIFETIMES = b"id,lower,upper,size\n" + b"".join(b"b%d,%d,%d,%d\n" % (n, n, n + 5, 64 * n) for n in range(20))


def _recordings(draw: Random) -> None:
    data = damaged(draw, _recording())
    read_all(with_checksums(data) if len(data) > 64 and draw.random() < 0.8 else bytes(data))


class _Call:
    """A pickle of it names a function to call."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("attacked",)


def _snapshots(draw: Random) -> None:
    if draw.random() < 0.1:
        data: bytes = pickle.dumps({"device_traces": [[_Call()]], "segments": []})
    else:
        data = bytes(damaged(draw, _snapshot()))
    read_all(data)
    if os.path.exists("attacked"):
        raise Wrong("a snapshot called a function")


def _logs(draw: Random) -> None:
    read_all(bytes(damaged(draw, _RMM)))


def _lifetimes(draw: Random) -> None:
    read_all(bytes(damaged(draw, _LIFETIMES)))


@functools.cache
def _plan() -> bytes:
    path = new_path(".csv")
    path.write_bytes(_LIFETIMES.replace(b",0\n", b",64\n"))
    with tm.trace.open(path) as trace:
        saved = new_path(".json")
        tm.trace.save_plan(tm.trace.plan(trace.lifetimes()), saved)
    return saved.read_bytes()


def _plans(draw: Random) -> None:
    path = new_path(".json")
    path.write_bytes(damaged(draw, _plan()))
    try:
        load_plan(path)
    finally:
        path.unlink()


def _copy(draw: Random, fd: int, seals: bool = True) -> int:
    """A damaged copy of a file without a name, sealed as the original is."""
    import fcntl

    size = os.fstat(fd).st_size
    data = damaged_in_place(draw, os.pread(fd, size, 0))
    made = os.memfd_create("attack", os.MFD_ALLOW_SEALING)
    os.pwrite(made, data, 0)
    if draw.random() < 0.1:
        os.ftruncate(made, draw.choice([0, 1, 4095, size - 1, size + 4096]))
    if seals:
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return made


def damaged_in_place(draw: Random, sound: bytes) -> bytes:
    """Wrong numbers, most of them in the head, with the size kept."""
    data = bytearray(sound)
    for _ in range(draw.choice([1, 1, 2, 4, 16])):
        at = draw.randrange(min(len(data), draw.choice([64, 256, 4096, len(data)])) - 8) & ~3
        way = draw.randrange(3)
        if way == 0:
            struct.pack_into("<I", data, at, draw.getrandbits(32))
        elif way == 1:
            struct.pack_into("<Q", data, at, draw.choice([0, 1, 2**32, 2**63, 2**64 - 1]))
        else:
            data[at] = draw.randrange(256)
    return bytes(data)


def _budgets(draw: Random) -> None:
    with pools.SharedBudget.create("1MiB", name="a", patience=0.01) as budget:
        budget.claim(4096)
        fd = _copy(draw, budget.fd)
        budget.give_back(4096)
    try:
        with pools.SharedBudget.attach(fd, name="b", patience=0.01) as joined:
            _use_budget(draw, joined)
    finally:
        os.close(fd)


def _use_budget(draw: Random, joined: pools.SharedBudget) -> None:
    joined.participants()
    claimed = 0
    try:
        for nbytes in (1, 4096, 2**19):
            joined.claim(nbytes)
            claimed += nbytes
        _ = joined.used_by_all, joined.limit
    finally:
        if claimed:
            joined.give_back(claimed)


def _rings(draw: Random) -> None:
    how = {"mode": draw.choice(["latest", "every"]), "when_full": draw.choice(["wait", "drop", "overwrite"])}
    with tm.FrameRing(3, (4, 8), "uint8", **how) as ring:
        with ring.write(timeout=1) as frame:
            frame.tensor.fill_(7)
        control, frames = _copy(draw, ring.fds[0]), os.dup(ring.fds[1])
    try:
        with tm.FrameRing.attach(control, frames, readonly=draw.random() < 0.5) as joined:
            _use_ring(draw, joined)
    finally:
        os.close(control)
        os.close(frames)


def _use_ring(draw: Random, ring: tm.FrameRing) -> None:
    for _ in range(3):
        if not ring.readonly and draw.random() < 0.5:
            with ring.write(timeout=0) as written:
                written.tensor.fill_(1)
        with ring.read(timeout=0) as frame:
            frame.tensor.tolist()
        ring.readers()


_FORMATS: list[tuple[str, Callable[[Random], None]]] = [
    ("recording", _recordings),
    ("recording", _recordings),
    ("PyTorch snapshot", _snapshots),
    ("RMM log", _logs),
    ("lifetimes", _lifetimes),
    ("plan", _plans),
    ("shared budget", _budgets),
    ("frame ring", _rings),
]


def _case(draw: Random, note: Note) -> Outcome:
    name, attack = draw.choice(_FORMATS)
    note(name)
    try:
        attack(draw)
    except errors.TensormemError as error:
        if isinstance(error, errors.InternalError):
            raise
        return Outcome.REFUSED
    except ValueError as error:  # a plan is JSON
        if name != "plan":
            raise Wrong(f"{name}: {error!r}") from error
        return Outcome.REFUSED
    except Exception as error:
        raise Wrong(f"{name}: {error!r:.200}") from error
    return Outcome.FINE


_before = 0


def _begin() -> None:
    global _before
    draw = Random(1)
    for _, attack in _FORMATS:
        try:
            attack(draw)
        except Exception:
            continue
    _before = open_descriptors()


def _finish() -> None:
    after = open_descriptors()
    if after > _before:
        raise Leak(f"{after - _before} descriptors")


SUITE = Suite(
    "files",
    "A damaged file of any format, with its checksums right, is read or refused by name. It runs nothing, and nothing "
    "stays open.",
    _case,
    share=0.12,
    batch=300,
    begin=_begin,
    finish=_finish,
)
