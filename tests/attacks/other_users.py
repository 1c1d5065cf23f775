"""Owns: the attack by another user of the machine: it connects to everything that listens, talks nonsense, and opens
what belongs to this process by every name there is. It learns nothing and stops nothing. Only root can try.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Callable
from random import Random

import tensormem as tm
from attacks.live_objects import new_path
from attacks.outcome import Outcome, Wrong
from attacks.suite import Note, Suite
from support.other_users import free_uid, other_user
from tensormem import errors, pools
from tensormem.distributed import Node
from tensormem.distributed.handover import HandOverServer, new_address
from tensormem.distributed.worker_discovery import Presence, ask, members
from tensormem.sockets import directory
from tensormem.top import Watch, close, serve

__all__ = ["SUITE"]

_serial = itertools.count()


def _talk(address: str, kind: socket.SocketKind, data: bytes) -> str:
    """Connects, says something, listens for an answer: what came of it."""
    try:
        with socket.socket(socket.AF_UNIX, kind) as made:
            made.settimeout(0.5)
            made.connect(address)
            with contextlib.suppress(OSError):
                made.sendall(data)
            return "learned" if made.recv(4096) else "hung up"
    except TimeoutError:
        return "silence"
    except OSError as error:
        return type(error).__name__


def _must_not_learn(draw: Random, addresses: list[str], kinds: list[socket.SocketKind]) -> None:
    data = draw.choice([b"", b"{}\n", b'{"ask": "snapshot"}\n', b"\0" * 4096, draw.randbytes(100), b"x" * 70_000])
    tries = [(address, draw.choice(kinds)) for address in addresses for _ in range(2)]
    with other_user(lambda: [_talk(address, kind, data) for address, kind in tries], _uid()) as stranger:
        answers = stranger.report
    if "learned" in answers:
        raise Wrong(f"another user got an answer from {addresses}: {answers}")


def _uid() -> int:
    return free_uid()


def _listener(draw: Random) -> None:
    address = f"@attack-{os.getpid()}-{next(_serial)}" if draw.random() < 0.5 else str(new_path().absolute())
    with tm.Channel.listen(address) as listener:
        _must_not_learn(draw, [address.replace("@", "\0", 1)], [socket.SOCK_SEQPACKET])
        try:
            listener.accept(timeout=0)
        except (errors.TimedOut, errors.ChannelRefused):
            return
        raise Wrong("a channel to another user was accepted")


def _top(draw: Random) -> None:
    service = serve()
    try:
        own = directory.own_directory()
        found = [os.path.join(own, name) for name in os.listdir(own)]
        _must_not_learn(draw, found or [own], [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
        with contextlib.closing(Watch(os.getpid())) as watch:
            watch.ask()
    finally:
        del service
        close()


def _presence(draw: Random) -> None:
    node = Node.here("attack", f"{os.getpid()}-{next(_serial)}")
    with Presence(node.key, -1, 7, lambda: {"used": 7}) as here:
        _must_not_learn(draw, [here.member.address], [socket.SOCK_SEQPACKET])
        if [ask(member) for member in members(node.key)] != [{"used": 7}]:
            raise Wrong("an honest worker is not seen any more")


def _handover(draw: Random) -> None:
    address = new_address()
    with contextlib.closing(HandOverServer(address)) as server:
        _must_not_learn(draw, [str(address).replace("@", "\0", 1)], [socket.SOCK_SEQPACKET])
        del server


def _descriptors(draw: Random) -> None:
    """What has no name is reached by nobody through /proc."""
    tensor = tm.zeros(64, "uint8", memory="shm")
    budget = pools.SharedBudget.create("1MiB", name="a")
    ring = tm.FrameRing(2, 64)
    held = [tensor.clone_fd(), budget.fd, *ring.fds]
    mine = os.getpid()

    def reach() -> list[str]:
        return [_opened(f"/proc/{mine}/fd/{fd}", flags) for fd in held for flags in (os.O_RDONLY, os.O_RDWR)]

    with other_user(reach, _uid()) as stranger:
        answers = stranger.report
    os.close(held[0])
    budget.close()
    ring.close()
    if "opened" in answers:
        raise Wrong(f"another user opened memory of this process: {answers}")


def _opened(path: str, flags: int) -> str:
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        return type(error).__name__
    return "opened"


def _files(draw: Random) -> None:
    """Recordings and plans tell of a program: they are for their owner and those whom the umask allows."""
    own = directory.own_directory()
    with other_user(lambda: [_opened(own, os.O_RDONLY)], _uid()) as stranger:
        if "opened" in stranger.report:
            raise Wrong("another user can list the sockets of this one")


_ATTACKS: list[Callable[[Random], None]] = [_listener, _top, _presence, _handover, _descriptors, _files]


def _case(draw: Random, note: Note) -> Outcome:
    attack = draw.choice(_ATTACKS)
    note(attack.__name__)
    attack(draw)
    return Outcome.FINE


SUITE = Suite(
    "users",
    "Another user of the machine connects to everything that listens, and opens every descriptor by its name in /proc: "
    "it gets no answer and no memory, and those who are served go on being served.",
    _case,
    share=0.0004,
    batch=20,
    why_not=lambda: None if os.geteuid() == 0 else "only root can become another user",
)
