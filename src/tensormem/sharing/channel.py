"""Owns: channels, which carry tensors and frame rings between processes: a description, and the descriptors beside it.

Nothing is mapped before the message was checked, and every descriptor that came with a bad one is closed. Must not
know: how bytes travel (sockets), or what memory there is (memories).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from typing import NoReturn, Self, TypeVar

from tensormem import errors
from tensormem._core import MAX_MESSAGE_BYTES, MessageFacts, Tensor, describe_ring, describe_tensor, parse_message
from tensormem.closable import Closable
from tensormem.construction import constructed_once
from tensormem.images import Image
from tensormem.images.description import DESCRIPTION_BYTES, DESCRIPTION_MARK, format_description
from tensormem.sharing.frame_ring import FrameRing
from tensormem.sockets.connection import Connection, connected
from tensormem.sockets.deadline import Deadline
from tensormem.sockets.descriptors import close_all
from tensormem.sockets.listener import Listener
from tensormem.sockets.peer import allowed_uids
from tensormem.tensor import from_fd

__all__ = ["Channel", "ChannelListener"]

_AnyChannel = TypeVar("_AnyChannel", bound="Channel")


@constructed_once
class Channel(Closable):
    """One end of a connection between two processes that carries tensors of shared memory, without a copy.

    `Channel.pair()` makes both ends, one of which goes to a child; `Channel.listen(path)` and `Channel.connect(path)`
    find each other by a path, or by "@name", which is no file. Both sides look who the other is: a process of another
    user is refused unless `uids` names it. Threads may share a channel, and closing it wakes those that wait; it goes
    through `multiprocessing` as well.

    >>> import tensormem as tm
    >>> here, there = tm.Channel.pair()
    >>> with here, there:
    ...     image = tm.zeros((480, 640, 3), "uint8", memory="shm")
    ...     here.send(image[::2, ::2], readonly=True)
    ...     seen = there.receive(timeout=1)
    >>> seen.shape, seen.strides, seen.readonly, seen.aliases(image)
    ((240, 320, 3), (3840, 6, 1), True, True)
    """

    def __init__(self, connection: socket.socket, *, uids: Iterable[int] | None = None) -> None:
        """Over a connected Unix socket of the kind that keeps messages apart (SOCK_SEQPACKET), which is its own now."""
        if connection.family != socket.AF_UNIX or connection.type & 0xF != socket.SOCK_SEQPACKET:
            raise errors.InvalidArgument("a channel needs a Unix socket that keeps messages apart (SOCK_SEQPACKET)")
        self._connection = Connection(connection, uids)

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        """Both ends of a new channel."""
        try:
            first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise errors.from_system("socketpair", error) from None
        return cls(first), cls(second)

    @staticmethod
    def listen(path: str | os.PathLike[str], *, uids: Iterable[int] | None = None) -> ChannelListener:
        """Wait for others at a path (a file for this user alone), or at "@name". `uids`: who is let in."""
        return ChannelListener(path, uids=uids)

    @classmethod
    def connect(
        cls, path: str | os.PathLike[str], *, timeout: float | None = None, uids: Iterable[int] | None = None
    ) -> Self:
        """Connect to whoever listens there, if it runs as one of `uids`; by default as this user."""
        allowed = allowed_uids(uids)
        return _own(cls, connected(path, Deadline(timeout)), allowed)

    def fileno(self) -> int:
        """The socket's descriptor, to be watched or inherited; -1 when closed."""
        return self._connection.fileno()

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._connection.closed

    @property
    def uids(self) -> frozenset[int]:
        """Who may be at the other end."""
        return self._connection.uids

    def send(self, thing: Tensor | Image | FrameRing, readonly: bool = False, *, timeout: float | None = None) -> None:
        """Share a tensor or an image of shared memory, or a frame ring; `readonly`: the kernel lets others only read.

        The memory stays ours as well: both sides see the same bytes. A tensor of other memory is refused, not copied.
        """
        deadline = self._begin(timeout)
        if isinstance(thing, Image):
            shut = bool(readonly or thing.data.readonly)
            message = format_description(thing.layout) + describe_tensor(thing.data, shut)
            descriptors = [thing.data.clone_fd(readonly=shut)]
        elif isinstance(thing, FrameRing):
            message = describe_ring(thing.nbytes, bool(readonly or thing.readonly))
            descriptors = thing.clone_fds(readonly=readonly)
        elif isinstance(thing, Tensor):
            message = describe_tensor(thing, bool(readonly or thing.readonly))
            descriptors = [thing.clone_fd(readonly=bool(readonly or thing.readonly))]
        else:
            raise errors.InvalidArgument(
                f"a channel carries tensors, images and frame rings, not {type(thing).__name__}"
            )
        try:
            self._connection.send(message, descriptors, deadline)
        finally:
            close_all(descriptors)

    def receive(self, *, timeout: float | None = None) -> Tensor:
        """The next tensor. `ChannelClosed` when the other end is gone, `MalformedMessage` for what cannot be taken."""
        facts, descriptors, _ = self._receive(timeout, "a tensor")
        return self._tensor(facts, descriptors)

    def receive_image(self, *, timeout: float | None = None) -> Image:
        """The next image, with its format, pitch and planes, as `receive` gives the next tensor."""
        facts, descriptors, description = self._receive(timeout, "an image")
        data = self._tensor(facts, descriptors)
        try:
            return Image.from_description(data, description)
        except BaseException:
            data.close()
            raise

    @staticmethod
    def _tensor(facts: MessageFacts, descriptors: list[int]) -> Tensor:
        try:
            tensor = from_fd(
                descriptors[0],
                facts.dtype,
                facts.shape,
                strides=facts.strides,
                offset=facts.offset,
                readonly=facts.readonly,
            )
            if tensor.storage.nbytes < facts.capacity:
                raise errors.MalformedMessage(32, what="the file is smaller than the message says")
            return tensor
        finally:
            close_all(descriptors)

    def receive_ring(self, *, timeout: float | None = None) -> FrameRing:
        """The next frame ring, as `receive` gives the next tensor."""
        facts, descriptors, _ = self._receive(timeout, "a frame ring")
        try:
            return FrameRing.attach(descriptors[0], descriptors[1], readonly=facts.readonly)
        finally:
            close_all(descriptors)

    def _receive(self, timeout: float | None, wanted: str) -> tuple[MessageFacts, list[int], bytes]:
        deadline = self._begin(timeout)
        # One byte more than there may be, so that a message that is too long cannot be taken for one that is not.
        most = MAX_MESSAGE_BYTES + DESCRIPTION_BYTES + 1
        message, descriptors = self._connection.receive(most, deadline)
        try:
            is_image = message.startswith(DESCRIPTION_MARK)
            description = message[:DESCRIPTION_BYTES] if is_image else b""
            facts = parse_message(message[len(description) :])
            if len(descriptors) != facts.descriptors:
                counts = f"{facts.descriptors} descriptors belong to it, and {len(descriptors)} came"
                raise errors.MalformedMessage(len(message), what=counts)
            came = "a frame ring" if facts.is_ring else "an image" if is_image else "a tensor"
            if came != wanted or (is_image and facts.is_ring):
                raise errors.MalformedMessage(10, what=f"{came} came where {wanted} was asked for")
            return facts, descriptors, description
        except BaseException:
            close_all(descriptors)
            raise

    def _begin(self, timeout: float | None) -> Deadline:
        if self.closed:
            raise errors.ChannelClosed("this end was closed")
        return Deadline(timeout)

    def close(self) -> None:
        """Close this end; the other one hears of it, and so does who waits here. Calling it again is harmless. Memory
        that was received stays.
        """
        self._connection.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a channel travels as an argument of a multiprocessing process, or by its descriptor")

    def __repr__(self) -> str:
        return f"<Channel {'closed' if self.closed else self.fileno()}>"


def _own(cls: type[_AnyChannel], connection: socket.socket, uids: Iterable[int]) -> _AnyChannel:
    """A channel over a socket that is closed if it may not be one."""
    try:
        return cls(connection, uids=uids)
    except BaseException:
        connection.close()
        raise


@constructed_once
class ChannelListener(Closable):
    """Where others connect; made by `Channel.listen`. The file, if there is one, goes when it is closed.

    >>> import tensormem as tm
    >>> with tm.Channel.listen("@tensormem-example") as listener:
    ...     client = tm.Channel.connect("@tensormem-example")
    ...     with client, listener.accept(timeout=1) as server:
    ...         client.send(tm.full(3, 7, "int8", memory="shm"))
    ...         server.receive(timeout=1).tolist()
    [7, 7, 7]
    """

    def __init__(self, path: str | os.PathLike[str], *, uids: Iterable[int] | None = None) -> None:
        self._listener = Listener(path, uids=uids)

    def fileno(self) -> int:
        """The socket's descriptor; -1 when closed."""
        return self._listener.fileno()

    def accept(self, *, timeout: float | None = None) -> Channel:
        """The next one who connects. `ChannelRefused` when it runs as a user who is not let in; then accept again."""
        return _own(Channel, self._listener.accept(Deadline(timeout)), self._listener.uids)

    def close(self) -> None:
        """Stop listening, and wake who waits. Calling it again is harmless; channels that were accepted go on."""
        self._listener.close()
