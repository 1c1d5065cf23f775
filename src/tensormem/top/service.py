"""Owns: the offer of this process to be watched: made on request, gone at the end, never shared with a forked child.

One thread and a few watchers at once. Must not know: what answers say, or how watchers find it.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import threading

from tensormem.closable import Closable
from tensormem.errors import CannotWatch, TensormemError
from tensormem.sockets.directory import names_in, open_directory, path_through
from tensormem.sockets.lines import LONGEST_REQUEST, LineClient
from tensormem.sockets.listener import Listener
from tensormem.sockets.server import Server
from tensormem.top.answers import Answers
from tensormem.top.directories import new_directory
from tensormem.top.messages import say

__all__ = ["Service", "close", "serve"]

_MOST_CLIENTS = 8
_TOO_LONG = say({"error": f"a request has at most {LONGEST_REQUEST} bytes"})


class Service(Closable):
    """A process that can be watched. Made by `serve()`.

    >>> import tensormem as tm
    >>> with tm.top.serve() as service:
    ...     with tm.top.Watch(service.pid) as watch:
    ...         watch.ask()["pid"] == service.pid
    True
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        answers = Answers()

        def meet(connection: socket.socket, now: float) -> LineClient:
            return LineClient(connection, now, answers.to, _TOO_LONG)

        self.path = ""
        """Where the socket is."""
        try:
            self._server = Server(
                self._offer(new_directory()),
                meet,
                name="tensormem-top",
                most_clients=_MOST_CLIENTS,
                full=say({"error": f"{_MOST_CLIENTS} watch already"}),
                tick=answers.sample,
            )
        except TensormemError as error:
            raise CannotWatch(self.pid, str(error)) from None
        except OSError as error:
            raise CannotWatch(self.pid, f"{error.filename}: {error.strerror}") from None

    @property
    def closed(self) -> bool:
        """Whether it cannot be watched any more."""
        return self._server.closed

    def close(self) -> None:
        """End the thread and remove the socket. Calling it again is harmless."""
        self._server.close()

    def _offer(self, place: str) -> Listener:
        name = f"{self.pid}-{secrets.token_hex(4)}.sock"
        self.path = os.path.join(place, name)
        with open_directory(place, create=True) as directory:
            names_in(path_through(directory, ""))  # killed processes leave theirs there
            return Listener(path_through(directory, f".{name}"), kind=socket.SOCK_STREAM, name=self.path)


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


def _forget_parent() -> None:
    global _lock
    _lock = threading.Lock()
    _current.clear()


atexit.register(close)
os.register_at_fork(after_in_child=_forget_parent)
