"""Owns: the entry of a node, through which one process at a time goes to join it.

It is a lock that the kernel takes back with the process that has it. One file serves all nodes of a user: each locks a
byte of its own. It is in the directory of the user, so nobody else can hold it. Must not know: who is there.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

from tensormem import errors
from tensormem._core import pause
from tensormem.errors import DistributedError
from tensormem.sockets.directory import own_directory

__all__ = ["entry"]

ENTRY_SECONDS = 10.0
_LOCK = struct.Struct("@hhqqi4x")  # of the kernel: kind, whence, start, length, process
_BREATH = 0.0005  # seconds
_held: set[int] = set()


@contextmanager
def entry(node: str, timeout: float = ENTRY_SECONDS) -> Iterator[None]:
    """One process of a node at a time. Who is killed inside lets the next one in."""
    try:
        fd = os.open(f"{own_directory()}/entry", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise errors.from_system("open", error) from None
    _held.add(fd)
    try:
        _lock(fd, node, timeout)
        yield
    finally:
        _held.discard(fd)
        os.close(fd)


def _lock(fd: int, node: str, timeout: float) -> None:
    byte = int.from_bytes(blake2b(node.encode(), digest_size=7).digest(), "big")
    end = time.monotonic() + timeout
    while True:
        try:
            # It is of the open file, not of the process: so threads keep each other out too.
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise DistributedError(f"another process has been entering node {node} for {timeout} s") from None
            pause(_BREATH)
        except OSError as error:
            raise errors.from_system("fcntl", error) from None


def _leave_to_the_parent() -> None:
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
