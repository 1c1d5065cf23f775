"""Owns: `Image`, memory with a description of the picture in it: its planes as tensors, and copies without gaps.

Must not know: how memory of any kind is made reachable; tensors and storages do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, SupportsIndex

from tensormem import errors
from tensormem._core import Storage
from tensormem.construction import constructed_once
from tensormem.images.description import format_description, parse_description
from tensormem.images.layout import ImageLayout
from tensormem.images.pixel_format import PixelFormat
from tensormem.tensor import Tensor, empty

__all__ = ["Image"]


@constructed_once
class Image:
    """A picture in memory of any kind: of `tm.image`, or over a tensor or storage that exists.

    Rows may have gaps between them (`pitch`), planes follow one another. The memory may be bigger than the picture, and
    `configure_image` puts another one there.

    >>> import tensormem as tm
    >>> picture = tm.Image(tm.zeros(4096, "uint8"), 6, 4, "nv12", pitch=64)
    >>> [(plane.shape, plane.strides, plane.offset) for plane in picture.planes]
    [((4, 6), (64, 1), 0), ((2, 3, 2), (64, 2, 1), 256)]
    >>> picture.copy_to_flat().nbytes
    36
    """

    def __init__(
        self,
        memory: Tensor | Storage,
        width: SupportsIndex,
        height: SupportsIndex,
        format: PixelFormat | str,
        *,
        pitch: SupportsIndex | None = None,
        pitch_alignment: SupportsIndex = 1,
    ) -> None:
        self._bytes = _bytes_of(memory)
        self._pitch_alignment = pitch_alignment.__index__()
        self._layout = self._fitting(width, height, format, pitch)

    # ---- What it is ----

    @property
    def layout(self) -> ImageLayout:
        """Where planes and rows begin."""
        return self._layout

    @property
    def width(self) -> int:
        """Pixels of a row."""
        return self._layout.width

    @property
    def height(self) -> int:
        """Rows of pixels."""
        return self._layout.height

    @property
    def format(self) -> PixelFormat:
        """How the pixels lie in memory."""
        return self._layout.format

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next, in every plane."""
        return self._layout.pitch

    @property
    def nbytes(self) -> int:
        """Bytes of the picture, its gaps included."""
        return self._layout.nbytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes that a picture here may have."""
        return self._bytes.nbytes

    @property
    def data(self) -> Tensor:
        """All bytes of the memory, as one row."""
        return self._bytes

    @property
    def storage(self) -> Storage:
        """The memory."""
        return self._bytes.storage

    @property
    def planes(self) -> tuple[Tensor, ...]:
        """Each plane as a tensor of shape (rows, columns) or (rows, columns, channels), over the same memory."""
        return self._planes_over(self._bytes)

    @property
    def tensor(self) -> Tensor:
        """The picture as one tensor: (height, width, channels), (height, width), or (planes, height, width).

        `InvalidArgument` where planes have different shapes, as in nv12.
        """
        layout = self._layout
        if not layout.format.is_uniform:
            raise errors.InvalidArgument(f"the planes of {layout.format} have different shapes; take them one by one")
        if len(layout.planes) == 1:
            return self.planes[0]
        first = layout.planes[0]
        distance = first.shape[0] * layout.pitch // layout.format.itemsize
        shape, strides = (len(layout.planes), *first.shape), (distance, *first.strides(layout.format.itemsize))
        return self._over(self._bytes, shape, strides, 0)

    # ---- Another picture in the same memory ----

    def configure_image(
        self,
        width: SupportsIndex,
        height: SupportsIndex,
        format: PixelFormat | str | None = None,
        *,
        pitch: SupportsIndex | None = None,
    ) -> Self:
        """Describe another picture in the same memory; `InsufficientCapacity`, and no change, where it does not fit.

        Rows are aligned as they were at the beginning. Planes that were taken before go on describing the old picture.
        """
        self._layout = self._fitting(width, height, self.format if format is None else format, pitch)
        return self

    def _fitting(
        self, width: SupportsIndex, height: SupportsIndex, format: PixelFormat | str, pitch: SupportsIndex | None
    ) -> ImageLayout:
        layout = ImageLayout.make(width, height, format, pitch=pitch, pitch_alignment=self._pitch_alignment)
        if layout.nbytes > self._bytes.nbytes:
            raise errors.InsufficientCapacity(layout.nbytes, self._bytes.nbytes)
        if self._bytes.offset % layout.format.itemsize:
            raise errors.InvalidArgument(f"pixels of {layout.format} cannot begin at byte {self._bytes.offset}")
        return layout

    # ---- Copies without gaps ----

    def copy_to_flat(self, into: Tensor | None = None) -> Tensor:
        """All samples without gaps, plane by plane and row by row, as bytes; into a new tensor unless told."""
        flat = empty(self._layout.flat_nbytes, "uint8", space=self.storage.space) if into is None else into
        self._check_flat(flat)
        with self._reached("r") as planes:
            for plane, part in zip(planes, self._parts_of(flat), strict=True):
                part.copy_(plane)
        return flat

    def copy_from_flat(self, source: Tensor) -> Self:
        """Fill the picture with what `copy_to_flat` gives; gaps stay as they are."""
        self._check_flat(source)
        with self._reached("w") as planes:
            for plane, part in zip(planes, self._parts_of(source), strict=True):
                plane.copy_(part)
        return self

    def _check_flat(self, flat: Tensor) -> None:
        needed = self._layout.flat_nbytes
        if flat.nbytes != needed or not flat.is_contiguous:
            raise errors.InvalidSize(flat.nbytes, what=f"{self!r} without gaps has {needed} bytes in one piece")

    def _parts_of(self, flat: Tensor) -> list[Tensor]:
        dtype, parts, offset = self.format.dtype, [], flat.offset
        if offset % self.format.itemsize:
            raise errors.InvalidArgument(f"pixels of {self.format} cannot begin at byte {offset}")
        for plane in self._layout.planes:
            parts.append(Tensor(flat.storage, dtype, plane.shape, offset=offset, readonly=flat.readonly or None))
            offset += plane.nbytes
        return parts

    @contextmanager
    def _reached(self, mode: str) -> Iterator[tuple[Tensor, ...]]:
        """The planes, within one access for all of them where memory is accessed in brackets."""
        if not self.storage.bracketed:
            yield self.planes
            return
        with self._bytes.map(mode) as mapped, mapped.as_tensor() as reached:
            yield self._planes_over(reached)

    def _planes_over(self, base: Tensor) -> tuple[Tensor, ...]:
        size = self.format.itemsize
        return tuple(self._over(base, plane.shape, plane.strides(size), plane.offset) for plane in self._layout.planes)

    def _over(self, base: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
        at, readonly = base.offset + offset, base.readonly or None
        return Tensor(base.storage, self.format.dtype, shape, strides=strides, offset=at, readonly=readonly)

    def close(self) -> None:
        """Give the memory back, for every view of it."""
        self._bytes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @classmethod
    def from_description(cls, data: Tensor, description: bytes) -> Image:
        """The image that a description of 64 bytes puts over memory; `MalformedMessage` where it does not fit there."""
        layout = parse_description(description)
        try:
            return cls(data, layout.width, layout.height, layout.format, pitch=layout.pitch)
        except errors.TensormemError as error:
            raise errors.MalformedMessage(8, what=f"the description of an image: {error!s:.200}") from None

    def __reduce__(self) -> tuple[Callable[[Tensor, bytes], Image], tuple[Tensor, bytes]]:
        return Image.from_description, (self._bytes, format_description(self._layout))

    def __repr__(self) -> str:
        return f"<Image {self.width} x {self.height} {self.format}, pitch {self.pitch}, in {self.storage.memory}>"


def _bytes_of(memory: Tensor | Storage) -> Tensor:
    """All bytes as one row."""
    if isinstance(memory, Storage):
        return Tensor(memory, "uint8", memory.nbytes)
    if not isinstance(memory, Tensor):
        raise errors.InvalidArgument(f"an image is over a tensor or a storage, not a {type(memory).__name__}")
    if not memory.is_contiguous:
        raise errors.InvalidArgument("an image lies in memory without gaps; give the storage of this tensor, or a part")
    return Tensor(memory.storage, "uint8", memory.nbytes, offset=memory.offset, readonly=memory.readonly or None)
