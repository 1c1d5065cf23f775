"""Owns: where others connect: an address that is taken, and left when it is closed. Whoever connects is checked before
anybody else sees the connection. Must not know: what is said.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterable
from contextlib import suppress

from tensormem import errors
from tensormem.sockets.address import address_of, remove_file
from tensormem.sockets.deadline import Deadline
from tensormem.sockets.peer import allowed_uids, check_peer
from tensormem.sockets.shared_socket import SharedSocket, new_socket

__all__ = ["Listener"]

_QUEUE = 128


class Listener(SharedSocket):
    """A listening socket at a path (a file for this user alone), or at "@name". `uids`: who is let in.

    `name` is the path that the file gets in the end. The one that it has at first can be read by every user in
    /proc/net/unix; a name that says something is never there.

    >>> from tensormem.sockets.connection import Connection
    >>> soon = Deadline(5)
    >>> with Listener("@tensormem-listener-example") as listener:
    ...     with Connection.to("@tensormem-listener-example", soon) as client, listener.accept(soon) as server:
    ...         client.send(b"hello", [], Deadline(5))
    ...         server.recv(5)
    b'hello'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        uids: Iterable[int] | None = None,
        kind: int = socket.SOCK_SEQPACKET,
        name: str | None = None,
    ) -> None:
        self.uids = allowed_uids(uids)
        self._address = address_of(path)
        self._name = self._address if name is None else os.fsencode(name)
        self._file: tuple[int, int] | None = None
        made = new_socket(kind)
        try:
            self._bind(made)
            made.listen(_QUEUE)
            self._take_name()
        except OSError as error:
            made.close()
            if self._file is not None:
                remove_file(self._address, self._file)
            raise errors.from_system(f"bind to {os.fspath(name or path)!r:.100}", error) from None
        super().__init__(made)

    def _bind(self, made: socket.socket) -> None:
        # Linux takes the mode of the file from the socket, so there is no moment at which others could connect.
        os.fchmod(made.fileno(), 0o600)
        is_file = not self._address.startswith(b"\0")
        try:
            made.bind(self._address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not is_file or not remove_file(self._address):
                raise
            made.bind(self._address)
        if is_file:
            facts = os.stat(self._address)
            self._file = facts.st_dev, facts.st_ino

    def _take_name(self) -> None:
        if self._name == self._address:
            return
        try:
            os.link(self._address, self._name)
        except FileExistsError:
            if not remove_file(self._name):
                raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from None
            os.link(self._address, self._name)
        os.unlink(self._address)

    def accept(self, deadline: Deadline) -> socket.socket:
        """The next one who connects. `ChannelRefused` when it runs as a user who is not let in; then accept again."""
        accepted, _ = self.when_ready(
            lambda listening: listening.accept(), select.POLLIN, deadline, "accept", "nobody connected"
        )
        try:
            check_peer(accepted, self.uids)
            accepted.setblocking(False)
            return accepted
        except BaseException:
            accepted.close()
            raise

    def close(self) -> None:
        """Stop listening, and remove the file. Calling it again is harmless; accepted connections go on."""
        super().close()
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # the directory may have gone, or be closed to us
                remove_file(self._name, file)

    def leave(self) -> None:
        """In a forked child: the address is the parent's."""
        self._file = None
        self.close()
