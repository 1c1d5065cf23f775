"""Owns: opening a device file of the kernel, and the reason in words when that does not work: missing, or not allowed.

Must not know: what the device is asked for.
"""

from __future__ import annotations

import errno
import grp
import os
import stat

from tensormem import errors
from tensormem.memories.dma import ioctls

__all__ = ["open_device", "refusal", "why_not_open"]


def open_device(path: str) -> int:
    """A descriptor of the device, closed on exec. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def why_not_open(path: str, missing: str) -> str | None:
    """None if this process may use the device; else the reason and the remedy. `missing` is said if it is not there.

    >>> why_not_open("/dev/null", "") is None, why_not_open("/dev/nothing/here", "no driver made it")
    (True, 'there is no /dev/nothing/here: no driver made it')
    """
    try:
        os.close(open_device(path))
        return None
    except OSError as refused:
        return _reason(refused, path, missing)


def refusal(refused: OSError, path: str, missing: str) -> errors.TensormemError:
    """What to raise when the device could not be opened: there is none for us, unless this process ran out itself."""
    if refused.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return ioctls.failure(refused, f"open of {path}")
    return errors.MemoryUnavailable("dma", _reason(refused, path, missing))


def _reason(refused: OSError, path: str, missing: str) -> str:
    if refused.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR):
        return f"there is no {path}: {missing}"
    if refused.errno == errno.EACCES:
        return _who_may(path)
    if refused.errno == errno.EPERM:
        return f"{path} is shut off from this container: start it with --device={path}"
    return f"{path} cannot be opened: {os.strerror(refused.errno or 0)}"


def _who_may(path: str) -> str:
    """Permission was denied: say whose it is and who has to be in which group."""
    try:
        facts = os.stat(path)
    except OSError:
        return f"{path} may not be opened by this user: its folder is closed to him"
    mode = f"{stat.S_IMODE(facts.st_mode):04o}"
    group = _group_name(facts.st_gid)
    if facts.st_mode & 0o060 == 0o060 and facts.st_gid != 0:
        return f"{path} (mode {mode}) may be opened by group {group}: add this user to it (usermod -aG {group} USER)"
    return (
        f"{path} (mode {mode}) may be opened by its owner alone: root can let a group in with a udev rule, such as "
        f'KERNEL=="{os.path.basename(path)}", GROUP="video", MODE="0660"'
    )


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
