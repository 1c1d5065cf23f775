"""Owns: the side that asks a hand-over server: taking what it offers, and bringing what it is to collect.

Must not know: engines, or how a server keeps things.
"""

from __future__ import annotations

import os
import secrets
import threading

from tensormem import errors
from tensormem._core import Tensor
from tensormem.closable import Closable
from tensormem.distributed.handover_messages import BRING, TAKE, Request, ask, connect, describe, rebuild
from tensormem.sockets.connection import Connection
from tensormem.sockets.descriptors import close_all

__all__ = ["Delivery", "take"]


def take(address: str, token: str, count: int) -> list[Tensor]:
    """The tensors that a server offers under a token, all of them or an error. They are the same memory, not a copy.

    A `SharingError` or `DriverError` if the server is gone, is another user's, or offers no such thing.
    """
    with connect(address) as connection:
        return [_taken(connection, Request(TAKE, token, index)) for index in range(count)]


def _taken(connection: Connection, request: Request) -> Tensor:
    message, descriptors = ask(connection, request, [])
    try:
        return rebuild(message, descriptors)
    finally:
        close_all(descriptors)


class Delivery(Closable):
    """Tensors on their way to one server, which holds them until they are collected or this is closed.

    >>> import tensormem as tm
    >>> from tensormem.distributed.handover import HandOverServer
    >>> with HandOverServer() as server, Delivery(server.address) as delivery:
    ...     token = delivery.bring(tm.full(2, 5, "int8", memory="shm"))
    ...     server.collect(token).tolist()
    [5, 5]
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.brought = 0
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._refused = False

    def bring(self, tensor: Tensor) -> str | None:
        """The token under which the other end can collect it; None if nobody is there who takes it."""
        token = secrets.token_hex(16)
        with self._lock:
            if self._refused:
                return None
            try:
                if self._connection is None:
                    self._connection = connect(self.address)
                self._send(self._connection, token, tensor)
            except errors.NotSupported:  # this one has no descriptor; another may
                return None
            except (errors.SharingError, errors.DriverError):
                self._refused = True
                return None
            self.brought += 1
            return token

    @staticmethod
    def _send(connection: Connection, token: str, tensor: Tensor) -> None:
        described, fd = describe(tensor)
        try:
            ask(connection, Request(BRING, token, rest=described), [fd])
        finally:
            os.close(fd)

    def close(self) -> None:
        """End it: what was not collected is let go at the other end. Once or many times."""
        with self._lock:
            self._refused = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
