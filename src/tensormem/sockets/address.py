"""Owns: addresses as text: the path of a file, or "@name", which is no file and is gone with its socket. And files on
which nobody listens any more, because their process was killed.
"""

from __future__ import annotations

import os
import socket
import stat

from tensormem import errors
from tensormem.sockets.shared_socket import new_socket

__all__ = ["address_of", "is_deserted", "remove_file"]

_PATH_BYTES = 107


def address_of(path: str | os.PathLike[str]) -> bytes:
    """The kernel's address for a path or "@name".

    >>> address_of("@camera"), address_of("/run/camera")
    (b'\\x00camera', b'/run/camera')
    """
    given = os.fspath(path)
    text = os.fsencode(given)
    if not text or b"\0" in text or len(text) > _PATH_BYTES or text == b"@":
        raise errors.InvalidArgument(
            f"a socket's path has from 1 to {_PATH_BYTES} bytes and no zero, not {given!r:.80}"
        )
    return b"\0" + text[1:] if text.startswith(b"@") else text


def is_deserted(path: str | bytes) -> bool:
    """Whether the file is a socket that no process has open.

    It is asked for a kind of socket that listeners never have: theirs answers that it is another kind and hears nothing
    of it, also if it does not listen yet.
    """
    with new_socket(socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def remove_file(path: str | bytes, file: tuple[int, int] | None = None) -> bool:
    """Remove a socket of this user, if it is still that file (device, inode), or nobody has it; whether it is gone."""
    try:
        facts = os.lstat(path)
        if not stat.S_ISSOCK(facts.st_mode) or facts.st_uid != os.geteuid():
            return False
        found = facts.st_dev, facts.st_ino
        if found != file and (file is not None or not is_deserted(path)):
            return False
        again = os.lstat(path)
        if (again.st_dev, again.st_ino) != found:  # another process has put its own there meanwhile
            return False
        os.unlink(path)
    except FileNotFoundError:
        pass
    return True
