"""Owns: `ImageLayout`, where every plane and row of an image begins, and how many bytes that takes.

Must not know: memory; it is arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from operator import index
from typing import SupportsIndex

from tensormem import errors
from tensormem.images.pixel_format import PixelFormat

__all__ = ["ImageLayout", "PlaneLayout"]

_MOST = 2**31 - 1  # pixels a side, what drivers can say


@dataclass(frozen=True)
class PlaneLayout:
    """One plane: its first byte, the distance of its rows in bytes, and its samples.

    >>> ImageLayout.make(6, 4, "nv12", pitch=64).planes[1]
    PlaneLayout(name='uv', offset=256, pitch=64, shape=(2, 3, 2), row_bytes=6)
    """

    name: str
    offset: int
    pitch: int
    shape: tuple[int, ...]
    row_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the samples, without gaps."""
        return self.shape[0] * self.row_bytes

    def strides(self, itemsize: int) -> tuple[int, ...]:
        """Distances in elements, as tensors have them."""
        inner = (self.shape[2], 1) if len(self.shape) == 3 else (1,)
        return (self.pitch // itemsize, *inner)


@dataclass(frozen=True)
class ImageLayout:
    """The planes of an image one behind the other, all with the same row pitch, or half of it for the differences of
    i420, as V4L2 and the DRM have them.

    >>> layout = ImageLayout.make(5, 3, "nv12")
    >>> layout.pitch, layout.nbytes, layout.flat_nbytes
    (6, 30, 27)
    """

    width: int
    height: int
    format: PixelFormat
    pitch: int
    planes: tuple[PlaneLayout, ...]

    @classmethod
    def make(
        cls,
        width: SupportsIndex,
        height: SupportsIndex,
        format: PixelFormat | str,
        *,
        pitch: SupportsIndex | None = None,
        pitch_alignment: SupportsIndex = 1,
    ) -> ImageLayout:
        """The layout with rows `pitch` bytes apart, or as close as `pitch_alignment` lets them."""
        kind = PixelFormat.parse(format)
        columns, rows = _side(width, "width"), _side(height, "height")
        if columns % kind.width_multiple:
            raise errors.InvalidArgument(f"an image of {kind} has an even width, not {columns}")
        shapes = [plane.shape(columns, rows) for plane in kind.planes]
        row_bytes = [_row_bytes(shape, kind.itemsize) for shape in shapes]
        least = max(nbytes * plane.pitch_divisor for nbytes, plane in zip(row_bytes, kind.planes, strict=True))
        distance = _pitch(least, kind, pitch, pitch_alignment)
        planes, offset = [], 0
        for plane, shape, nbytes in zip(kind.planes, shapes, row_bytes, strict=True):
            planes.append(PlaneLayout(plane.name, offset, distance // plane.pitch_divisor, shape, nbytes))
            offset += shape[0] * planes[-1].pitch
        return cls(columns, rows, kind, distance, tuple(planes))

    @property
    def nbytes(self) -> int:
        """Bytes from the first to the end of the last row, its gap included."""
        last = self.planes[-1]
        return last.offset + last.shape[0] * last.pitch

    @property
    def flat_nbytes(self) -> int:
        """Bytes of all samples, without gaps."""
        return sum(plane.nbytes for plane in self.planes)


def _side(value: SupportsIndex, what: str) -> int:
    number = index(value)
    if not 1 <= number <= _MOST:
        raise errors.InvalidArgument(f"the {what} of an image is 1 or more, not {number}")
    return number


def _row_bytes(shape: tuple[int, ...], itemsize: int) -> int:
    return shape[1] * (shape[2] if len(shape) == 3 else 1) * itemsize


def _pitch(least: int, format: PixelFormat, pitch: SupportsIndex | None, alignment: SupportsIndex) -> int:
    step = alignment.__index__()
    if step < 1 or step & (step - 1):
        raise errors.InvalidAlignment(step)
    if pitch is None:
        step = lcm(step, format.itemsize * format.pitch_divisor)
        return -(-least // step) * step
    given = pitch.__index__()
    if given < least or given % (format.itemsize * format.pitch_divisor) or given % step:
        raise errors.InvalidArgument(
            f"rows of {least} bytes of {format} cannot be {given} bytes apart"
            + (f", aligned to {step}" if step > 1 else "")
        )
    return given
