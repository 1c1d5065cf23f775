"""Owns: how the workers of a node find one another: each listens at an address in the directory of its user, which says
where its ledger is, and answers who asks with what it has.

No other user can put an address there, or reach one. What a killed process leaves there is removed by the next one that
looks. Must not know: what the answer says.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from tensormem import errors
from tensormem.sockets.closable import Closable
from tensormem.sockets.connection import Connection
from tensormem.sockets.deadline import ANSWER_SECONDS, Deadline
from tensormem.sockets.directory import names_in, own_directory
from tensormem.sockets.lines import LineClient
from tensormem.sockets.listener import Listener
from tensormem.sockets.server import Server

__all__ = ["Member", "Presence", "ask", "members"]

_MOST_CLIENTS = 64  # as many as there are workers in a node
_QUESTION = b"what do you have?\n"


class Member(NamedTuple):
    """A process of a node: its id, the descriptor of its ledger (-1 for none), and the limit it was told."""

    node: str
    pid: int
    fd: int
    limit: int

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{own_directory()}/{_prefix(self.node)}{self.pid}.{self.fd}.{self.limit:x}"


def _prefix(node: str) -> str:
    return f"worker-{node}-"


class Presence(Closable):
    """This process, for the others of its node, until `close`.

    >>> with Presence("docs", -1, 0, lambda: {"used": 7}) as here:
    ...     [ask(member) for member in members("docs")]
    [{'used': 7}]
    """

    def __init__(self, node: str, fd: int, limit: int, answer: Callable[[], dict[str, Any]]) -> None:
        self.member = Member(node, os.getpid(), fd, limit)

        def meet(connection: socket.socket, now: float) -> LineClient:
            return LineClient(connection, now, lambda line: _said(answer), idle=ANSWER_SECONDS)

        first = f"{own_directory()}/.{secrets.token_hex(8)}"
        listener = Listener(first, kind=socket.SOCK_STREAM, name=self.member.address)
        self._server = Server(listener, meet, name=f"tensormem-{node[:6]}", most_clients=_MOST_CLIENTS)

    def close(self) -> None:
        """Stop being a member. Calling it again is harmless."""
        self._server.close()


def _said(answer: Callable[[], dict[str, Any]]) -> bytes:
    try:
        return json.dumps(answer()).encode() + b"\n"
    except Exception:
        return b"\n"  # it is being set up or taken down: no answer, and no end of answering


def members(node: str) -> list[Member]:
    """Who is there of a node, this process included."""
    directory, found = own_directory(), []
    for name in names_in(directory):
        if name.startswith(_prefix(node)):
            with suppress(ValueError):
                pid, fd, limit = name.removeprefix(_prefix(node)).split(".")
                found.append(Member(node, int(pid), int(fd), int(limit, 16)))
    return sorted(found)


def ask(member: Member, timeout: float = 2.0) -> dict[str, Any] | None:
    """What a member has to say; None when it does not answer in time, or has just gone."""
    deadline = Deadline(timeout)
    try:
        with Connection.to(member.address, deadline, socket.SOCK_STREAM) as connection:
            if connection.peer.pid != member.pid:
                return None
            answer = json.loads(connection.ask(_QUESTION, deadline))
    except (errors.TensormemError, ValueError, EOFError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None
