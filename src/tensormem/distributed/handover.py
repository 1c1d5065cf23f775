"""Owns: the server by which a process hands memory to others of its node, and takes in what they bring.

It has a Unix socket and a thread. The kernel counts who holds the memory. Nothing ends by a clock: what was brought and
not collected goes when its bringer's connection closes, and the kernel closes those of a killed process. Must not know:
engines.
"""

from __future__ import annotations

import errno
import os
import secrets
import select
import selectors
import socket
import threading
import weakref
from types import TracebackType
from typing import Self

from tensormem import errors
from tensormem._core import Tensor
from tensormem.distributed import handover_messages as messages
from tensormem.sharing import unix_sockets

__all__ = ["HandOverServer", "new_address"]

_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_BREATH = 100  # milliseconds; whoever connects stays in the queue meanwhile

_open_servers: weakref.WeakSet[HandOverServer] = weakref.WeakSet()


def new_address() -> str:
    """An address that no other server has; there is no file behind it.

    >>> new_address()[0], len(new_address())
    ('@', 43)
    """
    return f"@tensormem-{secrets.token_hex(16)}"


class HandOverServer:
    """Where other processes of this user take memory that is offered here, and bring memory that is collected here.

    >>> import tensormem as tm
    >>> from tensormem.distributed.delivery import take
    >>> with HandOverServer() as server:
    ...     server.offer("frame 1", [tm.full(3, 7, "int8", memory="shm")])
    ...     [tensor.tolist() for tensor in take(server.address, "frame 1", 1)]
    [[7, 7, 7]]
    """

    def __init__(self, address: str | None = None) -> None:
        self.address = new_address() if address is None else address
        self._lock = threading.Lock()
        self._offered: dict[str, list[Tensor]] = {}
        self._brought: dict[str, tuple[socket.socket, Tensor]] = {}
        self._uids = unix_sockets.allowed_uids(None)
        self._listener, _ = unix_sockets.listen(self.address)
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stop, selectors.EVENT_READ)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tensormem-handover", daemon=True)
        self._thread.start()
        _open_servers.add(self)

    @property
    def is_running(self) -> bool:
        """Whether it serves; a server stays with the process that made it."""
        return not self._closed and self._thread.is_alive()

    def offer(self, token: str, tensors: list[Tensor]) -> None:
        """Let whoever knows the token take these tensors, as often as they like, until `withdraw`."""
        with self._lock:
            self._offered[token] = list(tensors)

    def withdraw(self, token: str) -> list[Tensor]:
        """Offer this no more; gives the tensors. Who took them keeps them. Once or many times."""
        with self._lock:
            return self._offered.pop(token, [])

    def offered(self, token: str) -> list[Tensor]:
        """What is offered under a token; nothing if nothing is."""
        with self._lock:
            return list(self._offered.get(token, ()))

    def collect(self, token: str) -> Tensor | None:
        """What was brought under a token, once. None if it was not, or if whoever brought it is gone."""
        with self._lock:
            return self._brought.pop(token, (None, None))[1]

    @property
    def waiting(self) -> int:
        """How many tensors were brought and not collected."""
        with self._lock:
            return len(self._brought)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._stop:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and not self._serve(key.fileobj):
                    self._let_go(key.fileobj)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:  # it went again, or this process can have no more descriptors now
            if error.errno in _NO_ROOM:
                waiting = select.poll()
                waiting.register(self._stop, select.POLLIN)
                waiting.poll(_BREATH)
            return
        try:
            unix_sockets.check_peer(connection, self._uids)
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
        except (OSError, errors.TensormemError):
            connection.close()

    def _serve(self, connection: socket.socket) -> bool:
        """Answer one request; whether the connection goes on."""
        try:
            message, descriptors = unix_sockets.receive(connection, messages.MOST_BYTES, 0)
        except (errors.TensormemError, OSError):
            return False
        try:
            request = messages.Request.parse(message)
            if request.verb == messages.BRING:
                self._keep(connection, request, descriptors)
            else:
                self._give(connection, request)
            return True
        except errors.VersionSkew:
            return self._says(connection, messages.OTHER_VERSION + messages.PROTOCOL_VERSION.to_bytes(2, "little"))
        except Exception as error:  # whatever it was, the next one is served
            return self._says(connection, messages.NO + str(error).encode()[:200])
        finally:
            unix_sockets.close_all(descriptors)

    @staticmethod
    def _says(connection: socket.socket, message: bytes) -> bool:
        try:
            messages.answer(connection, message, [])
            return True
        except (errors.TensormemError, OSError):
            return False

    def _keep(self, connection: socket.socket, request: messages.Request, descriptors: list[int]) -> None:
        tensor = messages.rebuild(request.rest, descriptors)
        with self._lock:
            self._brought[request.token] = (connection, tensor)
        messages.answer(connection, messages.YES, [])

    def _give(self, connection: socket.socket, request: messages.Request) -> None:
        tensors = self.offered(request.token)
        if request.which >= len(tensors):
            messages.answer(connection, messages.NO, [])
            return
        described, fd = messages.describe(tensors[request.which])
        try:
            messages.answer(connection, messages.YES + described, [fd])
        finally:
            os.close(fd)

    def _let_go(self, connection: socket.socket) -> None:
        """The other end is gone: what it brought and nobody collected goes too."""
        self._selector.unregister(connection)
        with self._lock:
            left = [token for token, (bringer, _) in self._brought.items() if bringer is connection]
            dropped = [self._brought.pop(token) for token in left]
        connection.close()
        del dropped  # outside the lock: giving memory back may run anybody's code

    def close(self) -> None:
        """Stop serving and let go of everything. Once or many times; what others took stays theirs."""
        with self._lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        os.eventfd_write(self._stop, 1)
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._close_descriptors()
        with self._lock:
            dropped = [*self._offered.values(), *self._brought.values()]
            self._offered, self._brought = {}, {}
        del dropped

    def _close_descriptors(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        os.close(self._stop)

    def _leave_to_the_parent(self) -> None:
        """After a fork the server is the parent's; our copies of its sockets would keep it and its peers waiting."""
        self._lock = threading.Lock()
        if not self._closed:
            self._closed = True
            self._close_descriptors()
            self._offered, self._brought = {}, {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _leave_all_to_the_parent() -> None:
    for server in list(_open_servers):
        server._leave_to_the_parent()


os.register_at_fork(after_in_child=_leave_all_to_the_parent)
