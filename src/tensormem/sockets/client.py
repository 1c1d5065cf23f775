"""Owns: one connection of a server as the server sees it: what to poll it for, and until when. Nothing here waits."""

from __future__ import annotations

import math
import select
import socket
from abc import ABC, abstractmethod

__all__ = ["Client"]


class Client(ABC):
    """A client that is served whenever something came from it. `closed` says when to forget it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self.closed = False

    def fileno(self) -> int:
        """Its descriptor."""
        return self._connection.fileno()

    def interest(self, now: float) -> int:
        """What to poll for."""
        return select.POLLIN

    def wakes_at(self, now: float) -> float:
        """When to look at it again although nothing happened."""
        return math.inf

    @abstractmethod
    def serve(self, events: int, now: float) -> None:
        """Do what can be done without waiting."""

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        self._connection.close()
