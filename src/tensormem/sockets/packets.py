"""Owns: messages that the kernel keeps apart, with descriptors beside them.

A descriptor that arrives is closed on every path on which it is not handed out. No call here waits, unless the socket
that it was given does. Must not know: what the bytes mean.
"""

from __future__ import annotations

import array
import socket
from collections.abc import Callable

from tensormem import errors
from tensormem.sockets.client import Client
from tensormem.sockets.descriptors import close_all

__all__ = ["MOST_DESCRIPTORS", "PacketClient", "receive_packet", "send_packet"]

MOST_DESCRIPTORS = 4  # with one message; the kernel closes what does not fit, and says so


def send_packet(connection: socket.socket, message: bytes, descriptors: list[int]) -> None:
    """Send one message; the descriptors stay the caller's."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    if connection.sendmsg([message], rights, socket.MSG_NOSIGNAL) != len(message):
        raise errors.ChannelClosed("the socket took only a part of the message")


def receive_packet(connection: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """One message of at most `most` bytes, with its descriptors, which are the caller's now.

    `ChannelClosed` at the end, `MalformedMessage` for what is longer or has more descriptors than any message.
    """
    room = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)
    message, extra, flags, _ = connection.recvmsg(most, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = _descriptors_in(extra)
    try:
        if not message and not descriptors and not flags & socket.MSG_CTRUNC:
            raise errors.ChannelClosed("the other end closed it")
        if flags & socket.MSG_TRUNC:
            raise errors.MalformedMessage(most, what="the message is longer than any message")
        if flags & socket.MSG_CTRUNC:
            raise errors.MalformedMessage(
                0, what="descriptors are lost: too many came, or this process can have no more"
            )
        return message, descriptors
    except BaseException:
        close_all(descriptors)
        raise


def _descriptors_in(extra: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


class PacketClient(Client):
    """One connection of a server whose messages are packets. `serve` answers one and says whether to go on.

    It has nothing unfinished: a packet is read and answered at once, or the connection ends. It may stay silent.
    """

    def __init__(
        self, connection: socket.socket, most: int, serve: Callable[[PacketClient, bytes, list[int]], bool]
    ) -> None:
        super().__init__(connection)
        self._most, self._serve = most, serve

    def serve(self, events: int, now: float) -> None:
        """Answer one message, if there is one."""
        if not events:
            return
        try:
            message, descriptors = receive_packet(self._connection, self._most)
        except BlockingIOError:
            return
        except (OSError, errors.TensormemError):
            self.close()
            return
        try:
            goes_on = self._serve(self, message, descriptors)
        finally:
            close_all(descriptors)
        if not goes_on:
            self.close()

    def answer(self, message: bytes, descriptors: list[int]) -> bool:
        """Answer; the descriptors stay the caller's. Whoever asks listens: who does not is given up, which is False."""
        try:
            send_packet(self._connection, message, descriptors)
            return True
        except (OSError, errors.TensormemError):
            return False
