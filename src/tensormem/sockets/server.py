"""Owns: the thread that serves a listener: as many clients at once as it may have, none of which it waits for.

Between answers it sleeps in the kernel without the interpreter's lock. A forked child does not have it: there its
descriptors are closed, and nothing of the parent's is touched. Must not know: what is said.
"""

from __future__ import annotations

import errno
import logging
import math
import operator
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

from tensormem import errors
from tensormem.sockets.client import Client
from tensormem.sockets.deadline import Deadline
from tensormem.sockets.listener import Listener

__all__ = ["Server"]

_BREATH = 0.1  # seconds without accepting, after that failed: the process may have no descriptors left
_FORK_WAITS = 1.0  # seconds, at most, for the answer that is being made
_log = logging.getLogger(__name__)

_all: weakref.WeakSet[Server] = weakref.WeakSet()


class Server:
    """Serves until it is closed; then the listener, which is its own, is closed too.

    `meet(connection, now)` makes a client; one more than `most_clients` gets `full` and has to go. `gone(client)` is
    called when one has hung up. `tick(now)` is called whenever it is time, and says when that is again.
    """

    def __init__(
        self,
        listener: Listener,
        meet: Callable[[socket.socket, float], Client],
        *,
        name: str,
        most_clients: int,
        full: bytes = b"",
        gone: Callable[[Client], object] = lambda client: None,
        tick: Callable[[float], float] = lambda now: math.inf,
    ) -> None:
        if not isinstance(listener, Listener):
            raise TypeError(f"a server serves a Listener, not {type(listener).__name__}")
        if not all(map(callable, (meet, gone, tick))) or not isinstance(full, bytes):
            raise TypeError("meet, gone and tick are called, and full is bytes")
        most_clients = operator.index(most_clients)
        self._listener, self._meet, self._full, self._gone, self._tick = listener, meet, full, gone, tick
        self._most_clients = most_clients
        self._clients: list[Client] = []
        self._refused: set[int] = set()
        self._accepts_from = self._next_tick = 0.0
        self._ending = False
        self._busy = threading.Lock()  # held by the thread but while it sleeps, so that a fork finds things in order
        try:
            self._waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            listener.close()
            raise errors.from_system("eventfd", error) from None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._let_go()
            raise errors.from_system("starting a thread", OSError(errno.EAGAIN, str(error))) from None
        _all.add(self)

    @property
    def closed(self) -> bool:
        """Whether it serves nobody any more."""
        return self._ending

    def close(self) -> None:
        """End the thread, leave the address and hang up. Calling it again is harmless."""
        if self._thread is threading.current_thread():
            self._ending = True  # the thread lets everything go when it is done with this
            return
        with self._busy:
            ended, self._ending = self._ending, True
            if not ended:
                os.eventfd_write(self._waker, 1)
        if not ended:
            self._thread.join()

    # --- The thread ---

    def _run(self) -> None:
        with self._busy:
            try:
                while not self._ending:
                    now = time.monotonic()
                    if now >= self._next_tick:
                        self._next_tick = self._tick(now)
                    self._turn(time.monotonic())
                    self._forget_closed()
            finally:
                self._ending = True
                self._let_go()

    def _turn(self, now: float) -> None:
        """Sleep until something happens or is due, and do it."""
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        wakes = [self._next_tick, *(client.wakes_at(now) for client in self._clients)]
        if now >= self._accepts_from:
            poll.register(self._listener, select.POLLIN)
        else:
            wakes.append(self._accepts_from)
        for client in self._clients:
            poll.register(client, client.interest(now))
        happened = dict(self._sleep(poll, max(0.0, min(wakes) - now)))
        now = time.monotonic()
        for client in self._clients:
            client.serve(happened.get(client.fileno(), 0), now)
        if self._listener.fileno() in happened and not self._ending:
            self._accept(now)

    def _forget_closed(self) -> None:
        closed = [client for client in self._clients if client.closed]
        self._clients = [client for client in self._clients if not client.closed]
        for client in closed:
            self._gone(client)

    def _sleep(self, poll: select.poll, seconds: float) -> list[tuple[int, int]]:
        self._busy.release()
        try:
            return poll.poll(None if seconds == math.inf else seconds * 1000 + 1)
        finally:
            self._busy.acquire()

    def _accept(self, now: float) -> None:
        try:
            connection = self._listener.accept(Deadline(0))
        except errors.ChannelRefused as refused:
            self._say_once(refused.uid)
            return
        except errors.TimedOut:  # it has gone again
            return
        except errors.TensormemError:
            self._accepts_from = now + _BREATH
            return
        if len(self._clients) < self._most_clients:
            self._clients.append(self._meet(connection, now))
            return
        with connection, suppress(OSError):
            connection.send(self._full, socket.MSG_NOSIGNAL)

    def _say_once(self, uid: int) -> None:
        """Others must not fill our log either."""
        if uid not in self._refused and len(self._refused) < 16:
            self._refused.add(uid)
            _log.warning("%s refused a connection of user %d, who is not let in", self._thread.name, uid)

    # --- The end, and forks ---

    def _let_go(self) -> None:
        self._listener.close()
        os.close(self._waker)
        for client in self._clients:
            client.close()
        self._clients = []

    def _forget_parent(self) -> None:
        """In a forked child: the thread is not here, and the address is the parent's."""
        if not self._ending:
            self._ending = True
            self._listener.leave()
            self._let_go()


_forking = threading.Lock()
_held: list[Server] = []  # over a fork


def _before_fork() -> None:
    _forking.acquire()
    _held.extend(server for server in list(_all) if server._busy.acquire(timeout=_FORK_WAITS))


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop()._busy.release()
    _forking.release()


def _after_fork_in_child() -> None:
    _held.clear()
    _forking.release()
    for server in list(_all):
        server._forget_parent()
        server._busy = threading.Lock()
    _all.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
