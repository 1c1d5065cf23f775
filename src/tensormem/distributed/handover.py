"""Owns: the server by which a process hands memory to others of its node, and takes in what they bring.

It has a Unix socket and a thread. The kernel counts who holds the memory. Nothing ends by a clock: what was brought and
not collected goes when its bringer's connection closes, and the kernel closes those of a killed process. Must not know:
engines.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import weakref

from tensormem import errors
from tensormem._core import Tensor
from tensormem.closable import Closable
from tensormem.distributed import handover_messages as messages
from tensormem.sockets.directory import names_in, own_directory
from tensormem.sockets.listener import Listener
from tensormem.sockets.packets import PacketClient
from tensormem.sockets.server import Server

__all__ = ["HandOverServer", "new_address"]

_MOST_CLIENTS = 1024

_open_servers: weakref.WeakSet[HandOverServer] = weakref.WeakSet()


def new_address() -> str:
    """An address that no other server has, in the directory of this user; without a file where there is none.

    >>> new_address() == new_address()
    False
    """
    name = f"handover-{secrets.token_hex(16)}"
    try:
        directory = own_directory()
        names_in(directory)  # killed processes leave theirs there
        return f"{directory}/{name}"
    except (errors.SharingError, errors.DriverError):
        return f"@tensormem-{name}"


class HandOverServer(Closable):
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
        self._brought: dict[str, tuple[PacketClient, Tensor]] = {}

        def meet(connection: socket.socket, now: float) -> PacketClient:
            return PacketClient(connection, messages.MOST_BYTES, self._serve)

        self._server = Server(
            Listener(self.address), meet, name="tensormem-handover", most_clients=_MOST_CLIENTS, gone=self._let_go
        )
        _open_servers.add(self)

    @property
    def is_running(self) -> bool:
        """Whether it serves; a server stays with the process that made it."""
        return not self._server.closed

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

    # --- In the thread ---

    def _serve(self, client: PacketClient, message: bytes, descriptors: list[int]) -> bool:
        """Answer one request; whether the connection goes on."""
        try:
            request = messages.Request.parse(message)
            if request.verb == messages.BRING:
                return self._keep(client, request, descriptors)
            return self._give(client, request)
        except errors.VersionSkew:
            return client.answer(messages.OTHER_VERSION + messages.PROTOCOL_VERSION.to_bytes(2, "little"), [])
        except Exception as error:  # whatever it was, the next one is served
            return client.answer(messages.NO + str(error).encode()[:200], [])

    def _keep(self, client: PacketClient, request: messages.Request, descriptors: list[int]) -> bool:
        tensor = messages.rebuild(request.rest, descriptors)
        with self._lock:
            self._brought[request.token] = (client, tensor)
        return client.answer(messages.YES, [])

    def _give(self, client: PacketClient, request: messages.Request) -> bool:
        tensors = self.offered(request.token)
        if request.which >= len(tensors):
            return client.answer(messages.NO, [])
        described, fd = messages.describe(tensors[request.which])
        try:
            return client.answer(messages.YES + described, [fd])
        finally:
            os.close(fd)

    def _let_go(self, client: object) -> None:
        """The other end is gone: what it brought and nobody collected goes too."""
        with self._lock:
            left = [token for token, (bringer, _) in self._brought.items() if bringer is client]
            dropped = [self._brought.pop(token) for token in left]
        del dropped  # outside the lock: giving memory back may run anybody's code

    # --- The end, and forks ---

    def close(self) -> None:
        """Stop serving and let go of everything. Calling it again is harmless; what others took stays theirs."""
        self._server.close()
        with self._lock:
            dropped = [*self._offered.values(), *self._brought.values()]
            self._offered, self._brought = {}, {}
        del dropped

    def _leave_to_the_parent(self) -> None:
        """In a forked child: the server is the parent's."""
        self._lock = threading.Lock()
        self._offered, self._brought = {}, {}


def _leave_all_to_the_parent() -> None:
    for server in list(_open_servers):
        server._leave_to_the_parent()


os.register_at_fork(after_in_child=_leave_all_to_the_parent)
