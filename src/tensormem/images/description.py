"""Owns: an image layout as 64 bytes, the form in which it travels beside its pixels: in messages, frames and pickles.

Whoever reads one does not trust who wrote it: every number is checked, and what cannot be is `MalformedMessage`.
Must not know: how it travels.
"""

from __future__ import annotations

import struct
from typing import Final

from tensormem import errors
from tensormem.images.layout import ImageLayout

__all__ = ["DESCRIPTION_BYTES", "DESCRIPTION_MARK", "format_description", "parse_description"]

DESCRIPTION_BYTES: Final = 64
DESCRIPTION_MARK: Final = b"tmim"
_VERSION: Final = 1
_FIELDS: Final = struct.Struct("<4sHHIIQ16s24x")


def format_description(layout: ImageLayout) -> bytes:
    """The 64 bytes that say a layout.

    >>> layout = ImageLayout.make(6, 4, "nv12", pitch=64)
    >>> parse_description(format_description(layout)) == layout
    True
    """
    name = str(layout.format).encode()
    return _FIELDS.pack(DESCRIPTION_MARK, _VERSION, 0, layout.width, layout.height, layout.pitch, name)


def parse_description(data: bytes) -> ImageLayout:
    """The layout that 64 bytes say; `VersionSkew` for another version, `MalformedMessage` for what cannot be right."""
    raw = bytes(data)
    if len(raw) != DESCRIPTION_BYTES or raw[:4] != DESCRIPTION_MARK:
        raise errors.MalformedMessage(0, what="this is not the description of an image")
    _, version, reserved, width, height, pitch, name = _FIELDS.unpack(raw)
    if version != _VERSION:
        raise errors.VersionSkew(version, _VERSION)
    if reserved or any(raw[_FIELDS.size - 24 :]):
        raise errors.MalformedMessage(6, what="bytes of an image's description that mean nothing are not zero")
    try:
        return ImageLayout.make(width, height, name.rstrip(b"\0").decode("ascii"), pitch=pitch)
    except (UnicodeDecodeError, errors.TensormemError) as error:
        raise errors.MalformedMessage(8, what=f"the description of an image: {error!s:.200}") from None
