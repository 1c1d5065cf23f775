"""Owns: messages that are lines of text: one client of a server as the server sees it, with its unfinished request, its
unread answer and its deadlines; and the line that whoever asks waits for.

Bounded in every way: a small buffer in, one answer out, a few answers a second, and a deadline for everything.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

from tensormem.sockets.client import Client
from tensormem.sockets.deadline import ANSWER_SECONDS

__all__ = ["LONGEST_ANSWER", "LONGEST_REQUEST", "LineClient", "LineReader"]

LONGEST_REQUEST = 4096
LONGEST_ANSWER = 4 * 2**20
IDLE_SECONDS = 60.0  # without a request
_PAUSE = 0.05  # seconds between an answer and the next request that is read


class LineReader:
    """The next line of a connection, which comes in pieces.

    >>> here, there = socket.socketpair()
    >>> with here, there:
    ...     here.send(b"first\\nsecond\\n"), LineReader(100)(there)
    (13, b'first\\n')
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def __call__(self, connection: socket.socket) -> bytes:
        """The whole line, of an answer to one request; `BlockingIOError` if the rest of it did not come yet, `EOFError`
        if it never will, `ValueError` if it is too long.
        """
        while not self._parts or b"\n" not in self._parts[-1]:
            if self._size > self._longest:
                raise ValueError(f"it answers with more than {self._longest} bytes")
            part = connection.recv(2**18)
            if not part:
                raise EOFError("the other end closed it")
            self._parts.append(part)
            self._size += len(part)
        return b"".join(self._parts).partition(b"\n")[0] + b"\n"


class LineClient(Client):
    """One that asks in lines. Who asks with more than a request can have gets `too_long`.

    >>> here, there = socket.socketpair()
    >>> client = LineClient(here, 0.0, lambda line: b"never", b"too long\\n")
    >>> _ = there.send(b"hello?" + bytes(5000))
    >>> client.serve(select.POLLIN, 0.0)
    >>> there.recv(100)
    b'too long\\n'
    >>> client.closed, there.close()
    (True, None)
    """

    def __init__(
        self,
        connection: socket.socket,
        now: float,
        answer: Callable[[bytes], bytes],
        too_long: bytes = b"\n",
        idle: float = IDLE_SECONDS,
    ) -> None:
        super().__init__(connection)
        self._answer_to = answer
        self._too_long = too_long
        self._idle = idle
        self._incoming = b""
        self._outgoing = memoryview(b"")
        self._reads_from = now
        self._ends = now + idle
        self._last_answer = False

    def interest(self, now: float) -> int:
        """What to poll for: room for the answer first, then the next request, when it is time for one."""
        if self._outgoing:
            return select.POLLOUT
        return select.POLLIN if now >= self._reads_from else 0

    def wakes_at(self, now: float) -> float:
        """When to look at it again although nothing happened."""
        if self._has_request(now):
            return now
        return self._ends if self._outgoing or now >= self._reads_from else min(self._ends, self._reads_from)

    def serve(self, events: int, now: float) -> None:
        """Do what can be done without waiting."""
        try:
            if events & (select.POLLERR | select.POLLNVAL) or now >= self._ends:
                self.close()
            elif events & select.POLLOUT and self._outgoing:
                self._write()
            elif events & (select.POLLIN | select.POLLHUP) or self._has_request(now):
                self._read(now)
        except BlockingIOError:
            pass
        except OSError:  # it is gone
            self.close()

    def _has_request(self, now: float) -> bool:
        """Whether one came together with the last, and may be answered now."""
        return b"\n" in self._incoming and not self._outgoing and now >= self._reads_from

    def _read(self, now: float) -> None:
        if b"\n" not in self._incoming:
            received = self._connection.recv(LONGEST_REQUEST + 1 - len(self._incoming))
            if not received:
                self.close()
                return
            self._incoming += received
        line, found, rest = self._incoming.partition(b"\n")
        if not found:
            self._ends = min(self._ends, now + ANSWER_SECONDS)
            if len(line) > LONGEST_REQUEST:
                self._answer(self._too_long, now, last=True)
            return
        self._incoming = rest
        self._answer(self._answer_to(line), now)

    def _answer(self, line: bytes, now: float, *, last: bool = False) -> None:
        self._outgoing = memoryview(line)
        self._last_answer = last
        self._reads_from = now + _PAUSE
        self._ends = now + ANSWER_SECONDS
        self._write()

    def _write(self) -> None:
        sent = self._connection.send(self._outgoing, socket.MSG_NOSIGNAL)
        self._outgoing = self._outgoing[sent:]
        if not self._outgoing:
            self._ends = self._reads_from + self._idle
            if self._last_answer:
                self.close()
