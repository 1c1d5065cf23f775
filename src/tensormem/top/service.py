"""Owns: the thread that lets this process be watched, and its socket: made on request, gone at the end, never shared
with a forked child.

One thread, a few watchers at once, nothing that waits for any of them. The work for an answer is short and bounded, and
between answers the thread sleeps in the kernel without the interpreter's lock.
Must not know: what answers say, or how watchers find it.
"""

from __future__ import annotations

import atexit
import os
import secrets
import select
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from tensormem.errors import CannotWatch
from tensormem.top.answers import Answers
from tensormem.top.client import Client
from tensormem.top.messages import say
from tensormem.top.peers import uid_of_peer
from tensormem.top.places import candidates, open_directory, path_through
from tensormem.top.processes import remove_deserted

__all__ = ["Service", "close", "serve"]

_MOST_CLIENTS = 8
_BREATH = 1.0  # seconds without accepting, after that failed: the process may have no descriptors left


class Service:
    """A process that can be watched. Made by `serve()`.

    >>> import tensormem as tm
    >>> with tm.top.serve() as service:
    ...     with tm.top.Watch(service.pid) as watch:
    ...         watch.ask()["pid"] == service.pid
    True
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.path = ""
        """Where the socket is."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            remove_deserted()
            self._offer(candidates()[0])
        except OSError as error:
            self._listener.close()
            if isinstance(error, CannotWatch):
                raise
            raise CannotWatch(self.pid, f"{error.filename or candidates()[0]}: {error.strerror}") from None
        self._waker = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._clients: list[Client] = []
        self._accepts_from = 0.0
        self._ending = False
        self._answers = Answers()
        self._busy = threading.Lock()  # held by the thread but while it sleeps, so that a fork finds things in order
        self._thread = threading.Thread(target=self._run, name="tensormem-top", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether it cannot be watched any more."""
        return self._ending

    def close(self) -> None:
        """End the thread and remove the socket. Once or many times."""
        with self._busy:
            ended, self._ending = self._ending, True
            if not ended:
                os.eventfd_write(self._waker, 1)
        if not ended:
            self._thread.join()
            self._let_go()
            _remove(self.path, self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _offer(self, place: str) -> None:
        """Listen first, then take the name that watchers look for: nobody can take it for one that was left behind."""
        name = f"{self.pid}-{secrets.token_hex(4)}"
        with open_directory(place, create=True) as directory:
            os.fchmod(self._listener.fileno(), 0o600)  # Linux gives this mode to the file
            self._listener.bind(path_through(directory, f".{name}"))
            try:
                self._listener.listen(_MOST_CLIENTS)
                os.rename(f".{name}", f"{name}.sock", src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                os.unlink(f".{name}", dir_fd=directory)
                raise
            facts = os.stat(f"{name}.sock", dir_fd=directory)
        self._file = facts.st_dev, facts.st_ino
        self.path = os.path.join(place, f"{name}.sock")

    # --- The thread ---

    def _run(self) -> None:
        with self._busy:
            while not self._ending:
                self._answers.sample()
                self._turn()
                self._clients = [client for client in self._clients if not client.closed]

    def _turn(self) -> None:
        """Sleep until something happens or is due, and do it."""
        now = time.monotonic()
        poll = select.poll()
        poll.register(self._waker, select.POLLIN)
        if now >= self._accepts_from:
            poll.register(self._listener, select.POLLIN)
        for client in self._clients:
            poll.register(client, client.interest(now))
        wakes = [self._answers.next_sample, *(client.wakes_at(now) for client in self._clients)]
        happened = dict(self._sleep(poll, max(0.0, min(wakes) - now)))
        now = time.monotonic()
        for client in self._clients:
            client.serve(happened.get(client.fileno(), 0), now, self._answers.to)
        if self._listener.fileno() in happened and not self._ending:
            self._accept(now)

    def _sleep(self, poll: select.poll, seconds: float) -> list[tuple[int, int]]:
        self._busy.release()
        try:
            return poll.poll(seconds * 1000 + 1)
        finally:
            self._busy.acquire()

    def _accept(self, now: float) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:  # it has gone again
            return
        except OSError:
            self._accepts_from = now + _BREATH
            return
        try:
            welcome = uid_of_peer(connection) == os.geteuid()
        except OSError:
            welcome = False
        if welcome and len(self._clients) < _MOST_CLIENTS:
            self._clients.append(Client(connection, now))
            return
        with connection:
            connection.setblocking(False)
            if welcome:
                _try_to_send(connection, say(error=f"{_MOST_CLIENTS} watch already"))

    # --- The end, and forks ---

    def _let_go(self) -> None:
        self._listener.close()
        os.close(self._waker)
        for client in self._clients:
            client.close()

    def _forget_parent(self) -> None:
        """In a forked child: the thread is not here, and the socket is the parent's."""
        self._ending = True
        self._let_go()


def _try_to_send(connection: socket.socket, line: bytes) -> None:
    with suppress(OSError):
        connection.send(line, socket.MSG_NOSIGNAL)


def _remove(path: str, file: tuple[int, int]) -> None:
    """Remove the socket, unless another file is there by now."""
    try:
        facts = os.lstat(path)
        if (facts.st_dev, facts.st_ino) == file:
            os.unlink(path)
    except FileNotFoundError:
        pass


# --- The one of this process ---

_current: dict[str, Service] = {}
_lock = threading.Lock()


def serve() -> Service:
    """Let `tensormem top` of the same user watch this process, from now on: starts one thread. Calls after the first
    give the same service, until it is closed. `CannotWatch` when there is no safe place for a socket.

    >>> service = serve()
    >>> serve() is service
    True
    >>> close()
    """
    with _lock:
        service = _current.get("service")
        if service is None or service.closed:
            service = _current["service"] = Service()
        return service


def close() -> None:
    """Take the offer of this process back, if there is one; also done when the interpreter ends.

    >>> close()
    """
    with _lock:
        service = _current.pop("service", None)
    if service is not None:
        service.close()


def _before_fork() -> None:
    _lock.acquire()
    if (service := _current.get("service")) is not None:
        service._busy.acquire()


def _after_fork_in_parent() -> None:
    if (service := _current.get("service")) is not None:
        service._busy.release()
    _lock.release()


def _after_fork_in_child() -> None:
    service = _current.pop("service", None)
    if service is not None:
        if not service.closed:
            service._forget_parent()
        service._busy.release()
    _lock.release()


atexit.register(close)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
