"""Owns: how the workers of a node find one another: each listens on a socket without a file, whose name says where its
ledger is, and answers everybody of the same user who connects with what it has.

The kernel forgets the name with the process, however that ends. Nothing is left in any folder.
Must not know: what the answer says.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tensormem.errors import DistributedError

__all__ = ["Member", "Presence", "ask", "entry", "members"]

_PREFIX = "tensormem/"
_SOCKETS = Path("/proc/net/unix")
_CREDENTIALS = struct.Struct("3i")
ENTRY_SECONDS = 10.0

_all: weakref.WeakSet[Presence] = weakref.WeakSet()


class Member(NamedTuple):
    """A process of a node: its id, the descriptor of its ledger (-1 for none), and the limit it was told."""

    node: str
    pid: int
    fd: int
    limit: int

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"\0{_PREFIX}{self.node}/{self.pid}.{self.fd}.{self.limit}"


class Presence:
    """This process, for the others of its node, until `close`.

    >>> with Presence("docs", -1, 0, lambda: {"used": 7}) as here:
    ...     [ask(member) for member in members("docs")]
    [{'used': 7}]
    """

    def __init__(self, node: str, fd: int, limit: int, answer: Callable[[], dict[str, Any]]) -> None:
        self.member = Member(node, os.getpid(), fd, limit)
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(self.member.address)
            self._socket.listen(16)
        except BaseException:
            self._socket.close()
            raise
        _all.add(self)
        # It holds nothing of us but the socket: who drops us ends it.
        name = f"tensormem-{self.member.node[:6]}"
        self._thread = threading.Thread(target=_serve, args=(self._socket, answer), name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Be no member any more. Once or many times."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        self._socket.close()

    def __enter__(self) -> Presence:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _serve(listening: socket.socket, answer: Callable[[], dict[str, Any]]) -> None:
    while True:
        try:
            peer, _ = listening.accept()
        except OSError:
            return
        with peer, suppress(OSError):
            peer.settimeout(1.0)
            _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if user == os.geteuid():
                peer.sendall(_said(answer))


def _said(answer: Callable[[], dict[str, Any]]) -> bytes:
    try:
        return json.dumps(answer()).encode()
    except Exception:
        return b""  # it is being set up or taken down: no answer, and no end of answering


def _leave_after_fork() -> None:
    # The child has no thread that answers, and must not keep its parent's name when that is gone.
    for presence in list(_all):
        presence._socket.close()
    _all.clear()


os.register_at_fork(after_in_child=_leave_after_fork)


def members(node: str) -> list[Member]:
    """Who is there of a node, this process included; only processes of this user that live."""
    start, found = f"@{_PREFIX}{node}/", []
    for line in _SOCKETS.read_text().splitlines():
        at = line.find(start)
        if at < 0 or line.endswith("/entry"):
            continue
        parts = line[at + len(start) :].split(".")
        with suppress(ValueError):
            pid, fd, limit = (int(part) for part in parts)
            found.append(Member(node, pid, fd, limit))
    # A connection that was accepted shows its listener's name too.
    return [member for member in sorted(set(found)) if _is_ours(member.pid)]


def _is_ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def ask(member: Member, timeout: float = 2.0) -> dict[str, Any] | None:
    """What a member has to say; None when it does not answer in time, or has just gone."""
    end = time.monotonic() + timeout
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(timeout)
            peer.connect(member.address)
            said = b""
            while part := peer.recv(65536):
                said += part
                peer.settimeout(max(end - time.monotonic(), 0.001))
        answer: dict[str, Any] = json.loads(said)
        return answer
    except (OSError, ValueError):
        return None


@contextmanager
def entry(node: str, timeout: float = ENTRY_SECONDS) -> Iterator[None]:
    """One process of a node at a time. Who is killed inside lets the next one in."""
    end = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        while True:
            try:
                door.bind(f"\0{_PREFIX}{node}/entry")
                break
            except OSError:
                if time.monotonic() > end:
                    raise DistributedError(f"another process has been entering node {node} for {timeout} s") from None
                time.sleep(0.0005)  # a kernel lock would need a file that somebody has to remove
        yield
