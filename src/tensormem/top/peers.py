"""Owns: who is at the other end of a socket, by the kernel's word.

Must not know: what is said.
"""

import socket
import struct

__all__ = ["uid_of_peer"]

_CREDENTIALS = struct.Struct("iII")


def uid_of_peer(connection: socket.socket) -> int:
    """The user that the other end ran as when the connection was made."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(raw)[1]
    return uid
