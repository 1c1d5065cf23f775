"""Question: what does shared memory cost to make, to look into, and to hand over?"""

import os
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory

import numpy

import tensormem as tm
from harness import NANOSECONDS, Peer, Question, Row, time_peers, timing_row

SIZES = (4096, 1920 * 1080 * 3, 1 << 28)


def create_ours(nbytes: int) -> None:
    tm.empty(nbytes, "uint8", memory="shm").close()


def create_theirs(nbytes: int) -> None:
    memory = SharedMemory(create=True, size=nbytes)
    memory.close()
    memory.unlink()


def attach_ours(tensor: tm.Tensor, nbytes: int) -> None:
    """As a peer does it: a descriptor is given and checked, and the memory mapped."""
    fd = tensor.clone_fd()
    try:
        tm.from_fd(fd, "uint8", nbytes).close()
    finally:
        os.close(fd)


def attach_theirs(name: str) -> None:
    SharedMemory(name=name).close()


def peers(nbytes: int, theirs: SharedMemory) -> list[Peer]:
    ours = tm.empty(nbytes, "uint8", memory="shm")
    with ours.map("r"):  # the mapping is made once and kept
        pass
    n = {"n": nbytes}
    return [
        Peer("tensormem, create and close", "f(n)", {"f": create_ours, **n}),
        Peer("multiprocessing, create, close and unlink", "f(n)", {"f": create_theirs, **n}),
        Peer("tensormem, share, attach and close", "f(t, n)", {"f": attach_ours, "t": ours, **n}),
        Peer("multiprocessing, attach and close", "f(n)", {"f": attach_theirs, "n": theirs.name}),
        Peer("tensormem, map and unmap", "t.map('rw').unmap()", {"t": ours}),
        Peer("tensormem, map to read and unmap", "t.map('r').unmap()", {"t": ours}),
        Peer("numpy, an array over a buffer", "f(b, 'u1')", {"f": numpy.frombuffer, "b": theirs.buf}),
    ]


def measure(say: Callable[[str], None]) -> list[Row]:
    rows = []
    for nbytes in SIZES:
        say(f"{nbytes:,} bytes")
        theirs = SharedMemory(create=True, size=nbytes)
        try:
            timings = time_peers(peers(nbytes, theirs))
        finally:
            theirs.close()
            theirs.unlink()
        rows += [timing_row(name, nbytes, timing) for name, timing in timings.items()]
    return rows


QUESTION = Question(
    name="shared_memory",
    title="Shared memory: made, mapped, handed over",
    asks="No byte is touched. Ours is a nameless file, sealed against shrinking; its peer is a named one with a "
    "process that watches over names. Attaching ours duplicates a descriptor, checks type, size and seals, and maps.",
    case_label="bytes",
    metrics=[NANOSECONDS],
    measure=measure,
    ours="tensormem, create and close",
    pairs=[
        ("tensormem, create and close", "multiprocessing, create, close and unlink"),
        ("tensormem, share, attach and close", "multiprocessing, attach and close"),
    ],
    packages=("tensormem", "numpy"),
)
