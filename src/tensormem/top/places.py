"""Owns: the directory that the sockets of a user are in, and the reasons not to trust one.

It is `$XDG_RUNTIME_DIR/tensormem`, or `tensormem-UID` in the directory for temporary files; mode 0700 and owned by the
user, or it is refused. It is opened once, and everything inside is reached through that descriptor: whatever happens to
its name afterwards, nobody is led elsewhere. Must not know: what the sockets are for.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tensormem.errors import CannotWatch

__all__ = ["candidates", "is_usable", "open_directory", "path_through"]


def candidates() -> list[str]:
    """Where the directory may be; the first is where a new socket goes. A reader looks in all of them: a service and a
    shell of one user may have been given different surroundings.
    """
    uid = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [os.path.join(runtime, "tensormem")] if os.path.isabs(runtime) else []
    places += [f"/run/user/{uid}/tensormem"] if not places and os.path.isdir(f"/run/user/{uid}") else []
    places += [os.path.join(tempfile.gettempdir(), f"tensormem-{uid}"), f"/tmp/tensormem-{uid}"]
    return list(dict.fromkeys(places))


@contextmanager
def open_directory(path: str, *, create: bool = False) -> Iterator[int]:
    """A descriptor of the directory, for the body of a `with`. `FileNotFoundError` when there is none,
    `CannotWatch` when somebody else could have put something into it.
    """
    if create:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:  # also what a symbolic link is to O_NOFOLLOW
        raise CannotWatch(0, f"{path} is no directory, or a symbolic link") from None
    try:
        _check(path, os.fstat(fd), os.stat(os.path.dirname(path)))
        yield fd
    finally:
        os.close(fd)


def is_usable() -> bool:
    """Whether a process of this user could offer a socket here."""
    try:
        with open_directory(candidates()[0], create=True):
            return True
    except OSError:
        return False


def path_through(directory: int, name: str) -> str:
    """A short path of something in an open directory, for calls that take no descriptor."""
    return f"/proc/self/fd/{directory}/{name}"


def _check(path: str, facts: os.stat_result, around: os.stat_result) -> None:
    uid = os.geteuid()
    if facts.st_uid != uid:
        raise CannotWatch(0, f"{path} belongs to user {facts.st_uid}, not to {uid}")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise CannotWatch(0, f"others can get into {path}: its mode is {stat.S_IMODE(facts.st_mode):04o}, not 0700")
    # Whoever may rename things in the directory around it could put another in its place.
    shared = around.st_mode & 0o022 and not around.st_mode & stat.S_ISVTX
    if shared or around.st_uid not in (0, uid):
        raise CannotWatch(0, f"others can replace {path}: they can write to the directory around it")
