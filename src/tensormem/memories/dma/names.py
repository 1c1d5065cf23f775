"""Owns: the name and the exporter that the kernel shows for a DMA-BUF, in /proc and in debugfs.

Must not know: storages.
"""

from __future__ import annotations

from tensormem import errors
from tensormem.memories.dma import ioctls

__all__ = ["exporter_of", "name_of", "set_name"]

LONGEST = 31
"""Bytes of the longest name."""


def check_name(name: object) -> bytes:
    """The bytes of a name that the kernel takes.

    >>> check_name("left camera")
    b'left camera'
    """
    encoded = name.encode() if isinstance(name, str) else b""
    if not (0 < len(encoded) <= LONGEST and encoded.decode().isprintable()):
        raise errors.InvalidArgument(f"a name is printable text of 1 to {LONGEST} bytes, not {name!r:.60}")
    return encoded


def shortened(text: str | None) -> str | None:
    """The longest name that a text begins with; None if it begins with none.

    >>> shortened("a" * 40) == "a" * LONGEST, shortened("")
    (True, None)
    """
    name = "".join(c for c in text or "" if c.isprintable())
    return name.encode()[:LONGEST].decode(errors="ignore") or None


def set_name(fd: int, name: str) -> None:
    """Give the buffer a name, for whoever looks at it in /proc or in debugfs; another one replaces it."""
    encoded = check_name(name)
    try:
        ioctls.ask(fd, ioctls.SET_NAME, bytearray(encoded + b"\0"))
    except OSError as refused:
        raise ioctls.failure(refused, "DMA_BUF_SET_NAME") from None


def name_of(fd: int) -> str:
    """The name it was given, or ""."""
    return _fact(fd, "name")


def exporter_of(fd: int) -> str:
    """Who made it: a heap's name, "udmabuf", or a device driver."""
    return _fact(fd, "exp_name")


def _fact(fd: int, wanted: str) -> str:
    with open(f"/proc/self/fdinfo/{fd}", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if colon and name == wanted:
                return value.strip()
    return ""
