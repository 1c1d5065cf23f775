"""Owns: directories that only this user can reach, with the addresses of sockets; and the reasons not to trust one.

A directory has mode 0700 and belongs to the user, or it is refused. It is opened once, and everything inside is reached
through that descriptor: whatever happens to its name afterwards, nobody is led elsewhere.

All processes of a user find the same one in `own_directory`, whatever their environment. Its name stands where others
can write too, and may be taken by them: then ours has a suffix that nobody can guess, and is known by its owner.
"""

from __future__ import annotations

import os
import random
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tensormem import errors
from tensormem._core import pause
from tensormem.sockets.address import remove_file

__all__ = ["directories_in", "names_in", "open_directory", "own_directory", "path_through"]

_PARENTS = ("/tmp", "/dev/shm")  # the first that can be written to
_ROUNDS = 200
_known: dict[tuple[int, tuple[str, ...]], str] = {}  # by user and parents


@contextmanager
def open_directory(path: str, *, create: bool = False) -> Iterator[int]:
    """A descriptor of the directory, for the body of a `with`. `FileNotFoundError` when there is none,
    `UnsafeDirectory` when somebody else could have put something into it.
    """
    try:
        if create:
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:  # also what a symbolic link is to O_NOFOLLOW
        raise errors.UnsafeDirectory(path, "it is no directory, or a symbolic link") from None
    except PermissionError:
        raise errors.UnsafeDirectory(path, "it belongs to another user") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise errors.from_system(f"opening {path}", error) from None
    try:
        _check(path, os.fstat(fd), os.stat(os.path.dirname(path)))
        yield fd
    finally:
        os.close(fd)


def path_through(directory: int, name: str) -> str:
    """A short path of something in an open directory, for calls that take no descriptor."""
    return f"/proc/self/fd/{directory}/{name}"


def names_in(directory: str) -> list[str]:
    """The names in a directory; sockets of processes that were killed are removed first."""
    try:
        names = sorted(os.listdir(directory))
        return [name for name in names if not remove_file(os.path.join(directory, name))]
    except OSError as error:
        raise errors.from_system(f"looking into {directory}", error) from None


def _check(path: str, facts: os.stat_result, around: os.stat_result) -> None:
    uid = os.geteuid()
    if facts.st_uid != uid:
        raise errors.UnsafeDirectory(path, f"it belongs to user {facts.st_uid}, not to {uid}")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise errors.UnsafeDirectory(
            path, f"others can get into it: its mode is {stat.S_IMODE(facts.st_mode):04o}, not 0700"
        )
    if not _is_safe_around(around):
        raise errors.UnsafeDirectory(path, "others can replace it: they can write to the directory around it")


def _is_safe_around(around: os.stat_result) -> bool:
    """Whoever may rename things in the directory around ours could put another in its place."""
    shared = around.st_mode & 0o022 and not around.st_mode & stat.S_ISVTX
    return not shared and around.st_uid in (0, os.geteuid())


# --- The one that all processes of a user find ---


def own_directory(parent: str | None = None) -> str:
    """The directory of this user, made if there is none: `tensormem-UID` in /tmp or in `parent`, or that with a suffix
    where another user has the name. Whoever comes later finds the same one.
    """
    parents = _PARENTS if parent is None else (parent,)
    key = os.geteuid(), parents
    if key not in _known or not _is_ours(_known[key]):
        _known[key] = _found_or_made(parents)
    return _known[key]


def directories_in(parent: str) -> list[str]:
    """The directories of this user that there are already in another one."""
    plain = f"{parent}/tensormem-{os.geteuid()}"
    with suppress(OSError):
        return [*_with_suffix(plain), *([plain] if _is_ours(plain) else [])]
    return []


def _found_or_made(parents: tuple[str, ...]) -> str:
    for parent in parents:
        try:
            if os.access(parent, os.W_OK | os.X_OK) and _is_safe_around(os.stat(parent)):
                return _own_directory_in(parent)
        except OSError as error:
            raise errors.from_system(f"making a directory in {parent}", error) from None
    raise errors.UnsafeDirectory(parents[0], "others can replace what is in it, or this user can put nothing there")


def _own_directory_in(parent: str) -> str:
    plain = f"{parent}/tensormem-{os.geteuid()}"
    made = ""
    for _ in range(_ROUNDS):
        ours = _with_suffix(plain)
        if len(ours) == 1 or (not ours and _is_ours(plain, create=True)):
            return ours[0] if ours else plain
        # None, and the name is another's: make one. Several: processes made one at the same time, and each takes its
        # own back unless it is the only one. A directory that is alone when its maker looks is seen by all others.
        if not ours:
            made = f"{plain}-{secrets.token_hex(4)}"
            os.mkdir(made, 0o700)
            continue
        if made in ours:
            with suppress(OSError):  # somebody has put something into it
                os.rmdir(made)
            made = ""
        pause(random.uniform(0.0, 0.005))
    return ours[0]  # what a process left that was killed meanwhile


def _with_suffix(plain: str) -> list[str]:
    parent, name = os.path.split(plain)
    with os.scandir(parent) as found:
        return sorted(each.path for each in found if each.name.startswith(f"{name}-") and _is_ours(each.path))


def _is_ours(path: str, *, create: bool = False) -> bool:
    try:
        with open_directory(path, create=create):
            return True
    except (errors.UnsafeDirectory, FileNotFoundError):
        return False
