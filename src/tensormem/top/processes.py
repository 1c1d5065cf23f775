"""Owns: which processes of this user offer to be watched; and removing what killed ones left behind.

Must not know: what is asked of them.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from tensormem.errors import CannotWatch
from tensormem.top.conversation import converse
from tensormem.top.peers import uid_of_peer
from tensormem.top.places import candidates, open_directory, path_through

__all__ = ["Offer", "connect", "offers", "remove_deserted"]

_SOCKET = re.compile(r"(\.?)([0-9]{1,10})-[0-9a-f]{8}(?:\.sock)?")


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


def connect(pid: int) -> socket.socket:
    """A connection to a process that offers to be watched; `CannotWatch` if it does not."""
    refusal = CannotWatch(pid, "it offers no socket" if os.path.exists(f"/proc/{pid}") else "there is no such process")
    for each, connection in _connections(pid):
        if each == pid:
            return connection
    raise refusal


def remove_deserted() -> None:
    """Remove the sockets of processes that were killed."""
    for _, connection in _connections():
        connection.close()


def _connections(only: int | None = None) -> Iterator[tuple[int, socket.socket]]:
    """A connection to each process, or to one; whoever asks closes them."""
    first, *others = candidates()
    for place in (first, *others):
        try:
            with open_directory(place) as directory:
                for name in sorted(os.listdir(directory)):
                    drawn = _SOCKET.fullmatch(name)
                    if drawn is None or only not in (None, int(drawn[2])):
                        continue
                    connection = _reach(directory, name, int(drawn[2]), unfinished=bool(drawn[1]))
                    if connection is not None:
                        yield int(drawn[2]), connection
        except FileNotFoundError:
            continue
        except CannotWatch:
            if place == first:  # the others are only looked into; what cannot be trusted there is passed over
                raise


def _reach(directory: int, name: str, pid: int, *, unfinished: bool) -> socket.socket | None:
    """A connection, or None. A socket on which nobody listens was left by a process that was killed: it goes."""
    if unfinished:  # its process is about to listen on it, unless it is gone
        if not os.path.exists(f"/proc/{pid}"):
            _remove(directory, name, os.lstat(path_through(directory, name)))
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        facts = os.lstat(path_through(directory, name))
        connection.settimeout(5.0)
        connection.connect(path_through(directory, name))
        if uid_of_peer(connection) == os.geteuid():
            return connection
    except ConnectionRefusedError:
        _remove(directory, name, facts)
    except OSError:
        pass
    connection.close()
    return None


def _remove(directory: int, name: str, facts: os.stat_result) -> None:
    if stat.S_ISSOCK(facts.st_mode):
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
