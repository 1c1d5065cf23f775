"""Owns: a socket that threads share, and the one place where they wait for it.

`close` wakes whoever waits, with `ChannelClosed`. The descriptor itself goes with the last call that uses it, so that
none can meet a file that got the same number. Other processes that hold the same socket do not notice.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from tensormem import errors
from tensormem._core import wait_for_descriptors
from tensormem.closable import Closable
from tensormem.sockets.deadline import Deadline

__all__ = ["SharedSocket", "new_socket"]

_T = TypeVar("_T")
_SLICE = 0.05  # seconds between looks, where the process has no descriptor left by which it could be woken

_all: weakref.WeakSet[SharedSocket] = weakref.WeakSet()


def new_socket(kind: int = socket.SOCK_SEQPACKET) -> socket.socket:
    """A Unix socket that never blocks: waiting is done here."""
    try:
        return socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise errors.from_system("socket", error) from None


class SharedSocket(Closable):
    """A socket and the calls that use it now. A context manager that closes it.

    >>> here, there = socket.socketpair()
    >>> with SharedSocket(here) as shared, there:
    ...     there.send(b"x"), shared.when_ready(lambda used: used.recv(1), select.POLLIN, Deadline(5), "recv")
    (1, b'x')
    >>> shared.closed
    True
    """

    def __init__(self, made: socket.socket) -> None:
        made.setblocking(False)
        self._socket = made
        self._lock = threading.Lock()
        self._users = 0
        self._wakers: set[int] = set()
        self._closed = False
        _all.add(self)

    def fileno(self) -> int:
        """The descriptor, to be watched or inherited; -1 when closed."""
        return -1 if self._closed else self._socket.fileno()

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
        return self._closed

    def when_ready(
        self, call: Callable[[socket.socket], _T], event: int, deadline: Deadline, name: str, what: str = ""
    ) -> _T:
        """The result of a call that does not block, made anew whenever the socket may be ready for it."""
        used = self._begin()
        try:
            while True:
                try:
                    return call(used)
                except BlockingIOError:
                    self._wait(used, event, deadline, what)
        except (BrokenPipeError, ConnectionResetError):
            raise errors.ChannelClosed("the other end is gone") from None
        except OSError as error:
            raise errors.from_system(name, error) from None
        finally:
            self._end()

    def _wait(self, used: socket.socket, event: int, deadline: Deadline, what: str) -> None:
        left = deadline.seconds
        watched = [(used.fileno(), event)]
        waker = self._new_waker()
        try:
            if waker >= 0:
                watched.append((waker, select.POLLIN))
            else:
                left = _SLICE if left is None else min(left, _SLICE)
            happened = self._closed or wait_for_descriptors(*watched, timeout=left)
        finally:
            self._drop_waker(waker)
        if self._closed:
            raise errors.ChannelClosed("this end was closed")
        if not happened:
            deadline.check(what)

    # --- Who uses it ---

    def _begin(self) -> socket.socket:
        with self._lock:
            if self._closed:
                raise errors.ChannelClosed("this end was closed")
            self._users += 1
            return self._socket

    def _end(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and self._users <= 0
        if last:
            self._socket.close()

    def _new_waker(self) -> int:
        try:
            waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            return -1
        with self._lock:
            self._wakers.add(waker)
        return waker

    def _drop_waker(self, waker: int) -> None:
        with self._lock:
            self._wakers.discard(waker)
        if waker >= 0:
            os.close(waker)

    def close(self) -> None:
        """Close it here, and wake whoever waits. Calling it again is harmless."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for waker in self._wakers:
                os.eventfd_write(waker, 1)
            last = self._users <= 0
        if last:
            self._socket.close()

    def _stay_alone(self) -> None:
        """In a forked child: the threads that used it are not here."""
        self._lock = threading.Lock()
        self._users = 0
        for waker in self._wakers:
            with suppress(OSError):
                os.close(waker)
        self._wakers = set()
        if self._closed:
            self._socket.close()


def _stay_alone() -> None:
    for each in list(_all):
        each._stay_alone()


os.register_at_fork(after_in_child=_stay_alone)
