"""Owns: one watcher as the watched process sees it: its unfinished request, its unread answer, and its deadlines.

Bounded in every way: a small buffer in, one answer out, a few answers a second, and a deadline for everything. Nothing
here waits. Must not know: what answers say.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

from tensormem.top.messages import LONGEST_REQUEST, say

__all__ = ["Client"]

_PATIENCE = 5.0  # seconds for the rest of a request, or for taking an answer
_IDLE = 60.0  # seconds without a request
_PAUSE = 0.05  # seconds between an answer and the next request that is read


class Client:
    """One connection. `closed` says when to forget it.

    >>> here, there = socket.socketpair()
    >>> client = Client(here, now=0.0)
    >>> _ = there.send(b"hello?" + bytes(5000))
    >>> client.serve(select.POLLIN, 0.0, lambda line: b"never")
    >>> there.recv(100)
    b'{"schema":"tensormem.top","version":1,"error":"a request has at most 4096 bytes"}\\n'
    >>> client.closed, there.close()
    (True, None)
    """

    def __init__(self, connection: socket.socket, now: float) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._incoming = b""
        self._outgoing = memoryview(b"")
        self._reads_from = now
        self._ends = now + _IDLE
        self._last_answer = False
        self.closed = False

    def fileno(self) -> int:
        """Its descriptor."""
        return self._connection.fileno()

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

    def serve(self, events: int, now: float, answer: Callable[[bytes], bytes]) -> None:
        """Do what can be done without waiting."""
        try:
            if events & (select.POLLERR | select.POLLNVAL) or now >= self._ends:
                self.close()
            elif events & select.POLLOUT and self._outgoing:
                self._write()
            elif events & (select.POLLIN | select.POLLHUP) or self._has_request(now):
                self._read(now, answer)
        except BlockingIOError:
            pass
        except OSError:  # it is gone
            self.close()

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        self._connection.close()

    def _has_request(self, now: float) -> bool:
        """Whether one came together with the last, and may be answered now."""
        return b"\n" in self._incoming and not self._outgoing and now >= self._reads_from

    def _read(self, now: float, answer: Callable[[bytes], bytes]) -> None:
        if b"\n" not in self._incoming:
            received = self._connection.recv(LONGEST_REQUEST + 1 - len(self._incoming))
            if not received:
                self.close()
                return
            self._incoming += received
        line, found, rest = self._incoming.partition(b"\n")
        if not found:
            self._incoming = line
            self._ends = min(self._ends, now + _PATIENCE)
            if len(line) > LONGEST_REQUEST:
                self._answer(say(error=f"a request has at most {LONGEST_REQUEST} bytes"), now, last=True)
            return
        self._incoming = rest
        self._answer(answer(line), now)

    def _answer(self, line: bytes, now: float, *, last: bool = False) -> None:
        self._outgoing = memoryview(line)
        self._last_answer = last
        self._reads_from = now + _PAUSE
        self._ends = now + _PATIENCE
        self._write()

    def _write(self) -> None:
        sent = self._connection.send(self._outgoing, socket.MSG_NOSIGNAL)
        self._outgoing = self._outgoing[sent:]
        if not self._outgoing:
            self._ends = self._reads_from + _IDLE
            if self._last_answer:
                self.close()
