"""Owns: who is at the other end of a socket, by the kernel's word, and who may be.

The kernel notes the process and its user when a connection is made: of who connects, and of who listens.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from tensormem import errors

__all__ = ["Peer", "allowed_uids", "check_peer"]

_CREDENTIALS = struct.Struct("=iII")  # the ids of users and groups are unsigned


class Peer(NamedTuple):
    """The process at the other end; `pid` is 0 if this process cannot see it.

    >>> here, there = socket.socketpair()
    >>> with here, there:
    ...     Peer.of(here) == (os.getpid(), os.geteuid(), os.getegid())
    True
    """

    pid: int
    uid: int
    gid: int

    @classmethod
    def of(cls, connection: socket.socket) -> Peer:
        """Who made the other end."""
        try:
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError as error:
            raise errors.from_system("getsockopt", error) from None
        return cls(*_CREDENTIALS.unpack(raw))


def allowed_uids(uids: Iterable[int] | None) -> frozenset[int]:
    """Who may be at the other end: by default the user that this process runs as.

    >>> allowed_uids((7, 8)) == {7, 8}
    True
    """
    if uids is None:
        return frozenset((os.geteuid(),))
    chosen = frozenset(uids)
    if not all(type(uid) is int and 0 <= uid < 2**32 for uid in chosen):
        raise errors.InvalidArgument(f"uids are the numbers of users, not {sorted(map(repr, chosen))!r:.80}")
    return chosen


def check_peer(connection: socket.socket, uids: frozenset[int]) -> Peer:
    """Who is at the other end; `ChannelRefused` if it runs as a user who is not let in."""
    peer = Peer.of(connection)
    if peer.uid not in uids:
        raise errors.ChannelRefused(peer.uid)
    return peer
