"""Owns: one end of a connection whose other end was checked: packets with descriptors, or one question and its answer
in lines. Must not know: what is said.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterable
from typing import Self

from tensormem import errors
from tensormem._core import pause
from tensormem.sockets.address import address_of
from tensormem.sockets.deadline import Deadline
from tensormem.sockets.lines import LONGEST_ANSWER, LineReader
from tensormem.sockets.packets import receive_packet, send_packet
from tensormem.sockets.peer import allowed_uids, check_peer
from tensormem.sockets.shared_socket import SharedSocket, new_socket

__all__ = ["Connection", "connected"]

_BREATH = 0.001  # seconds between attempts to connect to a listener whose queue is full; there is nothing to poll for


def connected(path: str | os.PathLike[str], deadline: Deadline, kind: int = socket.SOCK_SEQPACKET) -> socket.socket:
    """A socket connected to whoever listens there, which is still to be checked."""
    address = address_of(path)
    made = new_socket(kind)
    try:
        while True:
            try:
                made.connect(address)
                return made
            except BlockingIOError:
                deadline.check("nobody accepted the connection")
                pause(_BREATH)
    except OSError as error:
        made.close()
        raise errors.from_system(f"connect to {os.fspath(path)!r:.100}", error) from None
    except BaseException:
        made.close()
        raise


class Connection(SharedSocket):
    """A connected socket, whose other end runs as one of `uids`, by default as this user; else `ChannelRefused`.

    >>> here, there = map(Connection, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    >>> with here, there:
    ...     here.send(b"hello", [], Deadline(5))
    ...     there.receive(100, Deadline(5)), here.peer.pid == os.getpid()
    ((b'hello', []), True)
    """

    def __init__(self, made: socket.socket, uids: Iterable[int] | None = None) -> None:
        self.uids = allowed_uids(uids)
        self.peer = check_peer(made, self.uids)
        super().__init__(made)

    @classmethod
    def to(cls, path: str | os.PathLike[str], deadline: Deadline, kind: int = socket.SOCK_SEQPACKET) -> Self:
        """A connection to a process of this user that listens at the path, or at "@name"."""
        made = connected(path, deadline, kind)
        try:
            return cls(made)
        except BaseException:
            made.close()
            raise

    def send(self, message: bytes, descriptors: list[int], deadline: Deadline) -> None:
        """Send one packet; the descriptors stay the caller's."""
        what = "the other end takes no more messages"
        self.when_ready(lambda to: send_packet(to, message, descriptors), select.POLLOUT, deadline, "sendmsg", what)

    def receive(self, most: int, deadline: Deadline) -> tuple[bytes, list[int]]:
        """The next packet, of at most `most` bytes, with its descriptors, which are the caller's now."""
        return self.when_ready(
            lambda of: receive_packet(of, most), select.POLLIN, deadline, "recvmsg", "no message came"
        )

    def ask(self, line: bytes, deadline: Deadline) -> bytes:
        """The line that answers a line. `EOFError` if none comes any more, `ValueError` if it is too long."""
        left = memoryview(line)
        while left:
            sent = self.when_ready(
                lambda to: to.send(left, socket.MSG_NOSIGNAL),  # noqa: B023 - called at once
                select.POLLOUT,
                deadline,
                "send",
                "the other end takes no question",
            )
            left = left[sent:]
        return self.when_ready(LineReader(LONGEST_ANSWER), select.POLLIN, deadline, "recv", "no answer came")
