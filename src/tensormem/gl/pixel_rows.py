"""Owns: `PixelRows`, how the texels of a texture lie in the memory of a tensor, and how OpenGL is told.

Must not know: textures, buffers, contexts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensormem import errors
from tensormem._core import Tensor
from tensormem.dtypes import dtype
from tensormem.gl.texture_format import TextureFormat

__all__ = ["PixelRows"]

_ALIGNMENTS = (2, 4, 8)


@dataclass(frozen=True)
class PixelRows:
    """Rows of texels, `pitch` bytes apart.

    OpenGL counts the distance of rows in texels or rounds it up; where neither gives the pitch, it takes single rows.

    >>> PixelRows(width=5, height=2, pitch=64, texel_bytes=4).storing
    (16, 1)
    >>> PixelRows(width=5, height=2, pitch=16, texel_bytes=3).storing
    (0, 2)
    >>> PixelRows(width=5, height=2, pitch=64, texel_bytes=3).storing is None
    True
    """

    width: int
    height: int
    pitch: int
    texel_bytes: int

    @property
    def storing(self) -> tuple[int, int] | None:
        """OpenGL's ROW_LENGTH and ALIGNMENT for all rows at once; None where they cannot say it."""
        if self.height == 1:
            return 0, 1
        if self.pitch % self.texel_bytes == 0:
            return self.pitch // self.texel_bytes, 1
        row_bytes = self.width * self.texel_bytes
        for alignment in _ALIGNMENTS:
            if -(-row_bytes // alignment) * alignment == self.pitch:
                return 0, alignment
        return None

    @classmethod
    def of(cls, tensor: Tensor, width: int, height: int, format: TextureFormat) -> PixelRows:
        """The rows of a tensor of shape (height, width, channels), or (height, width) for one channel."""
        if tensor.dtype != dtype(format.dtype):
            raise errors.InvalidArgument(f"a texture of {format} takes {format.dtype}, not {tensor.dtype}")
        shapes = [(height, width, format.channels), *([(height, width)] if format.channels == 1 else [])]
        if tensor.shape not in shapes:
            raise errors.InvalidArgument(
                f"a texture of {width} x {height} {format} takes {shapes[0]}, not {tensor.shape}"
            )
        lengths, strides = (*tensor.shape, 1)[:3], (*tensor.strides, 1)[:3]
        if (lengths[2] > 1 and strides[2] != 1) or (width > 1 and strides[1] != format.channels):
            raise errors.InvalidArgument("the texels of a row do not follow one another; copy it with .contiguous()")
        if height > 1 and strides[0] < width * format.channels:
            raise errors.InvalidArgument("the rows overlap or run backward; copy it with .contiguous()")
        return cls(width, height, strides[0] * tensor.itemsize, format.texel_bytes)
