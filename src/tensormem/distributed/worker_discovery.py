"""Owns: how the workers of a node find one another and join its budget: each listens at an address in the directory of
its user, hands the descriptor of its ledger to who wants to join, and answers who asks with what it has.

No other user can put an address there, or reach one. What a killed process leaves there is removed by the next one that
looks. Containers with a directory of their own look for a beacon: a name of the network namespace that says nothing.
Anybody could take such a name, so both ends check by the kernel's word who the other is. Must not know: what the answer
says.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from tensormem import errors
from tensormem.closable import Closable
from tensormem.sockets.connection import Connection
from tensormem.sockets.deadline import ANSWER_SECONDS, Deadline
from tensormem.sockets.descriptors import close_all
from tensormem.sockets.directory import names_in, own_directory
from tensormem.sockets.listener import Listener
from tensormem.sockets.packets import PacketClient
from tensormem.sockets.server import Server

__all__ = ["Invitation", "Member", "Presence", "ask", "beacons", "join", "members"]

_MOST_CLIENTS = 1024
_MOST_BYTES = 1 << 16
_MOST_TAGS = 200  # of an answer, so that it is one packet
_LOOK, _JOIN = b"what do you have?", b"let me join"
_SOCKETS = Path("/proc/net/unix")


class Member(NamedTuple):
    """A process of a node: where it listens, a name of its own, and the limit it was told (None: ask it)."""

    address: str
    token: str
    limit: int | None = None

    @classmethod
    def new(cls, node: str, limit: int) -> Member:
        """One that is about to listen."""
        token = secrets.token_hex(8)
        return cls(f"{own_directory()}/{_prefix(node)}{token}.{limit:x}", token, limit)


class Invitation(NamedTuple):
    """What a member says to one who joins: who it is, what it was told, whether it is there to stay, and its ledger
    (-1 for none), which is the caller's to close.
    """

    pid: int
    limit: int
    settled: bool
    fd: int = -1


def _prefix(node: str) -> str:
    return f"worker-{node}-"


def _beacon(node: str) -> str:
    """Every user can read such names; this one tells nobody which node it is."""
    return f"@tensormem-{blake2b(node.encode(), digest_size=10, person=b'beacon').hexdigest()}-"


class Presence(Closable):
    """This process, for the others of its node, until `close`.

    >>> with Presence("docs", -1, 0, lambda: {"used": 7}) as here:
    ...     [ask(member) for member in members("docs")]
    [{'used': 7}]
    """

    def __init__(self, node: str, fd: int, limit: int, answer: Callable[[], dict[str, Any]]) -> None:
        self.member = Member.new(node, limit)
        self._fd, self._limit, self._answer = fd, limit, answer
        self._lock, self._settled, self._challengers = threading.Lock(), False, {self.member.token}
        first = f"{own_directory()}/.{secrets.token_hex(8)}"
        self._server = self._served(Listener(first, name=self.member.address), node)
        try:
            self._beacon = self._served(Listener(_beacon(node) + self.member.token), node)
        except BaseException:
            self._server.close()
            raise

    def _served(self, listener: Listener, node: str) -> Server:
        def meet(connection: socket.socket, now: float) -> PacketClient:
            return PacketClient(connection, _MOST_BYTES, self._serve)

        return Server(listener, meet, name=f"tensormem-{node[:6]}", most_clients=_MOST_CLIENTS)

    def _serve(self, client: PacketClient, question: bytes, descriptors: list[int]) -> bool:
        if not question.startswith(_JOIN):
            return client.answer(_said(self._answer), [])
        with self._lock:
            settled = self._settled
            if not settled and len(question) > len(_JOIN):
                self._challengers.add(question[len(_JOIN) :].decode(errors="replace"))
        facts = {"pid": os.getpid(), "limit": self._limit, "settled": settled}
        return client.answer(json.dumps(facts).encode(), [self._fd] if settled and self._fd >= 0 else [])

    def settle(self) -> bool:
        """Stay, from now on, and let others join; False if one that came at the same time goes before this one."""
        with self._lock:
            self._settled = min(self._challengers) == self.member.token
            return self._settled

    def close(self) -> None:
        """Stop being a member. Calling it again is harmless."""
        self._beacon.close()
        self._server.close()


def _said(answer: Callable[[], dict[str, Any]]) -> bytes:
    try:
        said = dict(answer())
        tags = said.get("tags", {})
        if len(tags) > _MOST_TAGS:
            said["tags"] = dict(sorted(tags.items(), key=lambda each: -each[1])[:_MOST_TAGS])
        return json.dumps(said).encode()
    except Exception:
        return b"null"  # it is being set up or taken down: no answer, and no end of answering


def members(node: str) -> list[Member]:
    """Who is there of a node, this process included."""
    directory, found = own_directory(), []
    for name in names_in(directory):
        if name.startswith(_prefix(node)):
            with suppress(ValueError):
                token, limit = name.removeprefix(_prefix(node)).split(".")
                found.append(Member(f"{directory}/{name}", token, int(limit, 16)))
    return found


def beacons(node: str) -> list[Member]:
    """Who says so from wherever on this network, the members and anybody else. Who they are, the kernel says."""
    names = re.compile(rf"({re.escape(_beacon(node))}([0-9a-f]{{16}}))$", re.MULTILINE)
    try:
        found = names.findall(_SOCKETS.read_text(errors="replace"))
    except OSError as error:
        raise errors.from_system(f"looking into {_SOCKETS}", error) from None
    return [Member(address, token) for address, token in sorted(set(found))]


def ask(member: Member, timeout: float = 2.0) -> dict[str, Any] | None:
    """What a member has to say; None when it does not answer in time, has just gone, or is not one of us."""
    with suppress(errors.TensormemError):
        answer, descriptors = _answered(member, _LOOK, timeout)
        close_all(descriptors)
        return answer
    return None


def join(member: Member, timeout: float = ANSWER_SECONDS, challenger: str = "") -> Invitation:
    """What a member hands to who joins. With the token of a `challenger`, a member that is not settled yet gives way to
    the one of the two whose token is smaller. `ChannelRefused` if it is another user's, `TimedOut` if it does not
    answer, another `SharingError` or `DriverError` if it has gone.
    """
    facts, descriptors = _answered(member, _JOIN + challenger.encode(), timeout)
    try:
        invitation = Invitation(int(facts["pid"]), int(facts["limit"]), bool(facts["settled"]))
        return invitation._replace(fd=descriptors.pop()) if descriptors else invitation
    except (KeyError, TypeError, ValueError):
        raise errors.MalformedMessage(0, what=f"this is not what a worker says: {facts!r:.100}") from None
    finally:
        close_all(descriptors)


def _answered(member: Member, question: bytes, timeout: float) -> tuple[dict[str, Any], list[int]]:
    deadline = Deadline(timeout)
    with Connection.to(member.address, deadline) as connection:
        connection.send(question, [], deadline)
        message, descriptors = connection.receive(_MOST_BYTES, deadline)
    try:
        answer = json.loads(message)
        if isinstance(answer, dict):
            return answer, descriptors
    except (ValueError, RecursionError):
        pass
    close_all(descriptors)
    raise errors.MalformedMessage(0, what=f"this is not what a worker says: {message!r:.100}")
