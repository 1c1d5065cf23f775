"""Owns: which processes of this user offer to be watched; and removing what killed ones left behind.

Must not know: what is asked of them.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from typing import NamedTuple

from tensormem.errors import CannotWatch, DriverError, SharingError, UnsafeDirectory
from tensormem.sockets.connection import Connection
from tensormem.sockets.deadline import ANSWER_SECONDS, Deadline
from tensormem.sockets.directory import names_in, open_directory, path_through
from tensormem.top.conversation import converse
from tensormem.top.directories import runtime_directory, temporary_directories

__all__ = ["Offer", "connect", "offers"]

_SOCKET = re.compile(r"([0-9]{1,10})-[0-9a-f]{8}\.sock")


class Offer(NamedTuple):
    """A process that can be watched.

    >>> Offer(4711, "python app.py").command
    'python app.py'
    """

    pid: int
    command: str


def offers() -> list[Offer]:
    """Every process of this user that can be watched now, this one included if it serves.

    >>> import os, tensormem as tm
    >>> with tm.top.serve():
    ...     os.getpid() in [offer.pid for offer in offers()]
    True
    """
    found = []
    for pid, connection in _connections():
        with connection:
            try:
                who = converse(connection, pid, "hello")
            except CannotWatch:
                continue
            found.append(Offer(int(who["pid"]), str(who["command"])))
    return sorted(set(found))


def connect(pid: int) -> Connection:
    """A connection to a process that offers to be watched; `CannotWatch` if it does not."""
    for _, connection in _connections(pid):
        return connection
    raise CannotWatch(pid, "it offers no socket" if os.path.exists(f"/proc/{pid}") else "there is no such process")


def _connections(only: int | None = None) -> Iterator[tuple[int, Connection]]:
    """A connection to each process, or to one; whoever asks closes them. What killed ones left is removed."""
    named = runtime_directory()
    for place in (*([named] if named else []), *temporary_directories()):
        try:
            with open_directory(place) as directory:
                yield from _connections_in(directory, only)
        except FileNotFoundError:
            continue
        except UnsafeDirectory as error:
            if place == named:  # the others are only looked into; what cannot be trusted there is passed over
                raise CannotWatch(0, str(error)) from None


def _connections_in(directory: int, only: int | None) -> Iterator[tuple[int, Connection]]:
    for name in names_in(path_through(directory, "")):
        matched = _SOCKET.fullmatch(name)
        if matched is None or only not in (None, int(matched[1])):
            continue
        path, pid = path_through(directory, name), int(matched[1])
        try:
            connection = Connection.to(path, Deadline(ANSWER_SECONDS), socket.SOCK_STREAM)
        except (SharingError, DriverError):  # it has just gone
            continue
        if connection.peer.pid in (pid, 0):  # 0: it is where this process does not see it
            yield pid, connection
        else:
            connection.close()
