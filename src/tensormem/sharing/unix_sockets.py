"""Owns: Unix sockets that keep messages apart: their addresses, who is at the other end, and sending and receiving
bytes with descriptors.

A descriptor that arrives is closed on every path on which it is not handed out. Must not know: what the bytes mean.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Iterable

from tensormem import errors

__all__ = ["allowed_uids", "check_peer", "connect", "listen", "new_socket", "receive", "send", "wait_until"]

MAX_DESCRIPTORS = 4  # with one message; the kernel closes what does not fit, and says so
_CREDENTIALS = struct.Struct("iII")
_PATH_BYTES = 107


def failed(call: str, error: OSError) -> errors.TensormemError:
    """The error for a system call that refused."""
    code = error.errno or 0
    return errors.from_failure("DriverError", call, code, (code, 0, 0, 0))


def new_socket() -> socket.socket:
    """A socket that keeps messages apart and never blocks: waiting is done by `wait_until`."""
    try:
        return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise failed("socket", error) from None


def address_of(path: str | os.PathLike[str]) -> bytes:
    """The address behind a path, or behind "@name", which is no file and is gone with its socket."""
    given = os.fspath(path)
    text = os.fsencode(given)
    if not text or b"\0" in text or len(text) > _PATH_BYTES or text == b"@":
        raise errors.InvalidArgument(
            f"a socket's path has from 1 to {_PATH_BYTES} bytes and no zero, not {given!r:.80}"
        )
    return b"\0" + text[1:] if text.startswith(b"@") else text


def listen(path: str | os.PathLike[str]) -> tuple[socket.socket, tuple[int, int] | None]:
    """A listening socket; for a file, 0600, and (device, inode) of the file."""
    address = address_of(path)
    made = new_socket()
    try:
        # Linux takes the mode of the file from the socket, so there is no moment at which others could connect.
        os.fchmod(made.fileno(), 0o600)
        try:
            made.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _remove_deserted(address):
                raise
            made.bind(address)
        made.listen(16)
        if address.startswith(b"\0"):
            return made, None
        facts = os.stat(address)
        return made, (facts.st_dev, facts.st_ino)
    except OSError as error:
        made.close()
        raise failed(f"bind to {os.fspath(path)!r:.100}", error) from None
    except BaseException:
        made.close()
        raise


def _remove_deserted(address: bytes) -> bool:
    """A socket of ours on which nobody listens any more, because its process was killed, is in nobody's way."""
    if address.startswith(b"\0"):
        return False
    facts = os.lstat(address)
    if not stat.S_ISSOCK(facts.st_mode) or facts.st_uid != os.geteuid():
        return False
    with new_socket() as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            if os.lstat(address).st_ino == facts.st_ino:  # and not one that another process has put there meanwhile
                os.unlink(address)
            return True
    return False


def connect(path: str | os.PathLike[str], timeout: float | None) -> socket.socket:
    """A socket connected to whoever listens at the path."""
    address = address_of(path)
    made = new_socket()
    end = deadline(timeout)
    try:
        while True:
            try:
                made.connect(address)
                return made
            except BlockingIOError:  # the queue of the listener is full; there is nothing to poll for
                if end is not None and time.monotonic() >= end:
                    raise errors.TimedOut(timeout or 0.0, what="nobody accepted the connection") from None
                time.sleep(0.001)
    except OSError as error:
        made.close()
        if isinstance(error, errors.TensormemError):
            raise
        raise failed(f"connect to {os.fspath(path)!r:.100}", error) from None
    except BaseException:
        made.close()
        raise


def allowed_uids(uids: Iterable[int] | None) -> frozenset[int]:
    """Who may be at the other end: by default the user that this process runs as."""
    if uids is None:
        return frozenset((os.geteuid(),))
    chosen = frozenset(uids)
    if not all(type(uid) is int and 0 <= uid < 2**32 for uid in chosen):
        raise errors.InvalidArgument(f"uids are the numbers of users, not {sorted(map(repr, chosen))!r:.80}")
    return chosen


def check_peer(connection: socket.socket, uids: frozenset[int]) -> None:
    """Refuse a peer that runs as another user: the kernel noted who it is when the connection was made."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    if uid not in uids:
        raise errors.ChannelRefused(uid)


def deadline(timeout: float | None) -> float | None:
    """When the time is up, by the monotonic clock."""
    if timeout is None:
        return None
    if type(timeout) not in {int, float} or not 0 <= timeout <= 1e9:
        raise errors.InvalidArgument(f"a timeout is a number of seconds from 0 on, or None, not {timeout!r:.80}")
    return time.monotonic() + timeout


def wait_until(connection: socket.socket, event: int, end: float | None, timeout: float | None, what: str) -> None:
    """Wait until the socket can do it, or is at its end; without the GIL."""
    watched = select.poll()
    watched.register(connection, event)
    left = None if end is None else max(0.0, end - time.monotonic()) * 1000
    if not watched.poll(left):
        raise errors.TimedOut(timeout or 0.0, what=what)


def send(connection: socket.socket, message: bytes, descriptors: list[int], timeout: float | None) -> None:
    """Send one message; the descriptors stay the caller's."""
    carried = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    end = deadline(timeout)
    while True:
        try:
            connection.sendmsg([message], carried, socket.MSG_NOSIGNAL)
            return
        except BlockingIOError:
            wait_until(connection, select.POLLOUT, end, timeout, "the other end takes no more messages")
        except (BrokenPipeError, ConnectionResetError):
            raise errors.ChannelClosed("the other end is gone") from None
        except OSError as error:
            raise failed("sendmsg", error) from None


def receive(connection: socket.socket, most: int, timeout: float | None) -> tuple[bytes, list[int]]:
    """One message of at most `most` bytes, with its descriptors, which are the caller's now."""
    room = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
    end = deadline(timeout)
    while True:
        try:
            message, extra, flags, _ = connection.recvmsg(most, room, socket.MSG_CMSG_CLOEXEC)
            break
        except BlockingIOError:
            wait_until(connection, select.POLLIN, end, timeout, "no message came")
        except ConnectionResetError:
            raise errors.ChannelClosed("the other end is gone") from None
        except OSError as error:
            raise failed("recvmsg", error) from None
    descriptors = _descriptors_in(extra)
    try:
        if not message and not descriptors:
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


def close_all(descriptors: list[int]) -> None:
    """Close every one of them."""
    for fd in descriptors:
        os.close(fd)
