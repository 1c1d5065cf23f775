"""Owns: `TextureFormat`, what one texel is: to OpenGL, and to a tensor.

Must not know: textures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensormem import errors
from tensormem.dtypes import dtype
from tensormem.gl import constants as c

__all__ = ["TextureFormat"]


@dataclass(frozen=True)
class TextureFormat:
    """What one texel is. Asked for by name: r8, rg8, rgb8, rgba8, bgra8, r16, r32f, rgba16f, rgba32f.

    >>> TextureFormat.parse("rgba8").channels, TextureFormat.parse("rgba8").texel_bytes
    (4, 4)
    """

    name: str
    channels: int
    dtype: str
    internal: int
    """How OpenGL keeps it."""
    external: int
    """The channels in memory."""
    type: int
    """One channel in memory."""

    @property
    def texel_bytes(self) -> int:
        """Bytes of one texel in memory."""
        return self.channels * dtype(self.dtype).itemsize

    @classmethod
    def parse(cls, text: TextureFormat | str) -> TextureFormat:
        """The format of this name."""
        if isinstance(text, TextureFormat):
            return text
        try:
            return _FORMATS[text]
        except (KeyError, TypeError):
            raise errors.InvalidArgument(f"a texture is {', '.join(_FORMATS)}, not {text!r:.40}") from None

    def __str__(self) -> str:
        return self.name


_FORMATS: Final = {
    each.name: each
    for each in (
        TextureFormat("r8", 1, "uint8", c.GL_R8, c.GL_RED, c.GL_UNSIGNED_BYTE),
        TextureFormat("rg8", 2, "uint8", c.GL_RG8, c.GL_RG, c.GL_UNSIGNED_BYTE),
        TextureFormat("rgb8", 3, "uint8", c.GL_RGB8, c.GL_RGB, c.GL_UNSIGNED_BYTE),
        TextureFormat("rgba8", 4, "uint8", c.GL_RGBA8, c.GL_RGBA, c.GL_UNSIGNED_BYTE),
        TextureFormat("bgra8", 4, "uint8", c.GL_RGBA8, c.GL_BGRA, c.GL_UNSIGNED_BYTE),
        TextureFormat("r16", 1, "uint16", c.GL_R16, c.GL_RED, c.GL_UNSIGNED_SHORT),
        TextureFormat("r32f", 1, "float32", c.GL_R32F, c.GL_RED, c.GL_FLOAT),
        TextureFormat("rgba16f", 4, "float16", c.GL_RGBA16F, c.GL_RGBA, c.GL_HALF_FLOAT),
        TextureFormat("rgba32f", 4, "float32", c.GL_RGBA32F, c.GL_RGBA, c.GL_FLOAT),
    )
}
