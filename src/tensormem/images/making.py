"""Owns: `image`, a new picture in memory of a kind.

Must not know: what the kinds are, but that hardware reads rows of DMA-BUFs only at certain distances.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, SupportsIndex

from tensormem._core import DeviceMemoryResource, StreamLike
from tensormem.images.image_view import Image
from tensormem.images.layout import ImageLayout
from tensormem.images.pixel_format import PixelFormat
from tensormem.memories import TensorMemory
from tensormem.memories.choice import allocate_for
from tensormem.memories.registry import allocate_kind
from tensormem.spaces import main

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike
    from tensormem.gl import GlContext

__all__ = ["image"]

_HARDWARE_PITCH: Final = 64  # what graphics processors of edge boards ask of rows that they read


def image(
    width: SupportsIndex,
    height: SupportsIndex,
    format: PixelFormat | str = "rgb",
    memory: TensorMemory | str | None = None,
    *,
    use: str | None = None,
    pitch: SupportsIndex | None = None,
    pitch_alignment: SupportsIndex | None = None,
    space: WhereLike = main,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    alignment: SupportsIndex | None = None,
    tag: str | None = None,
    peers: str | None = None,
    huge_pages: bool | None = None,
    heap: str | None = None,
    name: str | None = None,
    context: GlContext | None = None,
    persistent: bool | None = None,
    usage: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Image:
    """A new image whose pixels are whatever was in the memory; `mr` and what follows is as in `tm.memories.allocate`.

    Rows follow one another without gaps; in `dma`, and for `use="gpu"`, they are 64 bytes aligned. `pitch` and
    `pitch_alignment` say otherwise.

    >>> import tensormem as tm
    >>> frame = tm.image(6, 4, "rgb")
    >>> frame.tensor.shape, frame.pitch, tm.image(6, 4, "rgb", pitch_alignment=64).tensor.strides
    ((4, 6, 3), 18, (64, 3, 1))
    """
    aligned = memory == TensorMemory.DMA or use == "gpu"
    if pitch_alignment is None:
        pitch_alignment = _HARDWARE_PITCH if aligned and pitch is None else 1
    layout = ImageLayout.make(width, height, format, pitch=pitch, pitch_alignment=pitch_alignment)
    said: dict[str, Any] = {
        "mr": mr,
        "stream": stream,
        "alignment": alignment,
        "tag": tag,
        "peers": peers,
        "huge_pages": huge_pages,
    }
    said |= {"heap": heap, "name": name, "context": context, "persistent": persistent, "usage": usage}
    said |= dict(options or {})
    if memory is None:
        storage = allocate_for(layout.nbytes, use, space, said)
    else:
        storage = allocate_kind(layout.nbytes, memory, space, said)
    return Image(storage, width, height, format, pitch=layout.pitch, pitch_alignment=pitch_alignment)
