"""Owns: what processes of one node say to each other when memory is handed over: requests, answers, and descriptors.

Must not know: who offers what, and for how long.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tensormem import errors
from tensormem._core import MAX_MESSAGE_BYTES, Tensor, describe_tensor, parse_message
from tensormem.memories.descriptors import export_fd
from tensormem.sockets.connection import Connection
from tensormem.sockets.deadline import ANSWER_SECONDS, Deadline
from tensormem.sockets.descriptors import close_all
from tensormem.tensor import from_fd

__all__ = ["Request", "ask", "can_hand_over", "describe", "rebuild"]

PROTOCOL_VERSION = 1
MOST_BYTES = MAX_MESSAGE_BYTES + 256  # of one message
TAKE, BRING = b"T", b"B"
YES, NO, OTHER_VERSION = b"Y", b"N", b"V"
_FORM = struct.Struct("<2sHcI64s")  # mark, version, verb, which tensor, token
_MARK = b"ho"
_TOKEN_BYTES = 64


class Request(NamedTuple):
    """One request: take tensor `which` of what is offered under `token`, or bring one that `rest` describes.

    >>> Request.parse(Request(TAKE, "frame 1", 2).format()) == (TAKE, "frame 1", 2, b"")
    True
    """

    verb: bytes
    token: str
    which: int = 0
    rest: bytes = b""

    def format(self) -> bytes:
        """Its bytes."""
        if len(self.token.encode()) > _TOKEN_BYTES:
            raise errors.InvalidArgument(f"a token has at most {_TOKEN_BYTES} bytes, not {self.token!r:.100}")
        return _FORM.pack(_MARK, PROTOCOL_VERSION, self.verb, self.which, self.token.encode()) + self.rest

    @classmethod
    def parse(cls, message: bytes) -> Request:
        """The request that a message is; `VersionSkew` if it is of another version."""
        if len(message) < _FORM.size or not message.startswith(_MARK):
            raise errors.MalformedMessage(0, what="this is no request")
        _, version, verb, which, token = _FORM.unpack_from(message)
        if version != PROTOCOL_VERSION:
            raise errors.VersionSkew(version, PROTOCOL_VERSION)
        if verb not in (TAKE, BRING):
            raise errors.MalformedMessage(4, what=f"there is no request {verb!r}")
        return cls(verb, token.rstrip(b"\0").decode(errors="replace"), which, message[_FORM.size :])


def can_hand_over(tensor: Tensor) -> bool:
    """Whether there is a descriptor behind the tensor that another process can take.

    >>> import tensormem as tm
    >>> can_hand_over(tm.zeros(3)), can_hand_over(tm.zeros(3, memory="shm"))
    (False, True)
    """
    owner = tensor.storage.owner
    sealed = getattr(owner, "sealed", True)
    return hasattr(owner, "export_fd") and bool(sealed) and tensor.storage.nbytes > 0 and not tensor.dtype.is_subbyte


def describe(tensor: Tensor) -> tuple[bytes, int]:
    """The message that describes a tensor, and a descriptor that the caller closes."""
    tensor.wait()
    owner = tensor.storage.owner
    readonly = tensor.readonly or bool(getattr(owner, "readers_only", False))
    return describe_tensor(tensor, readonly), export_fd(
        tensor.storage, readonly=readonly and hasattr(owner, "export_readonly_fd")
    )


def rebuild(message: bytes, descriptors: list[int]) -> Tensor:
    """The tensor that a message describes; the descriptors stay the caller's."""
    facts = parse_message(message)
    if facts.is_ring or len(descriptors) != 1:
        raise errors.MalformedMessage(0, what=f"a tensor has one descriptor, and {len(descriptors)} came")
    return from_fd(
        descriptors[0], facts.dtype, facts.shape, strides=facts.strides, offset=facts.offset, readonly=facts.readonly
    )


def connect(address: str) -> Connection:
    """A connection to a server of this user. It answers at once, from a thread of its own; one that is stopped does
    not, and then the engine carries.
    """
    return Connection.to(address, Deadline(ANSWER_SECONDS))


def ask(connection: Connection, request: Request, descriptors: list[int]) -> tuple[bytes, list[int]]:
    """What comes with a yes. `ChannelClosed` for a no, `VersionSkew` if the other end is of another version."""
    deadline = Deadline(ANSWER_SECONDS)
    connection.send(request.format(), descriptors, deadline)
    message, came = connection.receive(MOST_BYTES, deadline)
    verdict, rest = message[:1], message[1:]
    if verdict == YES:
        return rest, came
    close_all(came)
    if verdict == OTHER_VERSION and len(rest) == 2:
        raise errors.VersionSkew(int.from_bytes(rest, "little"), PROTOCOL_VERSION)
    why = rest.decode(errors="replace")
    raise errors.ChannelClosed(f"the other end does not have it: {why}" if why else "the other end does not have it")
