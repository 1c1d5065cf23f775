"""Owns: in which directories the sockets of a user's watched processes are. Must not know: what makes one safe."""

from __future__ import annotations

import os
import tempfile

from tensormem import errors
from tensormem.sockets.directory import directories_in, open_directory, own_directory

__all__ = ["is_usable", "new_directory", "runtime_directory", "temporary_directories"]


def runtime_directory() -> str | None:
    """The one that this user's surroundings name, if they name any; it need not exist."""
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(named):
        return os.path.join(named, "tensormem")
    given = f"/run/user/{os.geteuid()}"
    return f"{given}/tensormem" if os.path.isdir(given) else None


def new_directory() -> str:
    """Where a new socket goes."""
    return runtime_directory() or own_directory(tempfile.gettempdir())


def temporary_directories() -> list[str]:
    """Where others may be: a service and a shell of one user may have been given different surroundings."""
    return [each for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")) for each in directories_in(parent)]


def is_usable() -> bool:
    """Whether a process of this user could offer a socket here."""
    try:
        with open_directory(new_directory(), create=True):
            return True
    except (OSError, errors.TensormemError):
        return False
