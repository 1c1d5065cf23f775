"""Owns: `Texture`, an image that OpenGL keeps, filled from tensors and read into tensors.

From and into pixel buffers nothing is copied by the CPU: OpenGL is given the buffer and an offset in it. Must not know:
how a storage of any kind is made.
"""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Self

from tensormem import errors
from tensormem._core import Tensor
from tensormem.construction import constructed_once
from tensormem.gl import constants as c
from tensormem.gl.buffer import PixelBuffer
from tensormem.gl.calls import PACKING, UNPACKING
from tensormem.gl.context import GlContext
from tensormem.gl.pixel_rows import PixelRows
from tensormem.gl.texture_format import TextureFormat

__all__ = ["Texture"]


@constructed_once
class Texture:
    """A two-dimensional texture of `width` x `height` texels of `format`; row 0 of a tensor is row 0 of the texture.

    >>> import tensormem as tm
    >>> from tensormem.gl import why_not
    >>> if why_not() is None:
    ...     with Texture(4, 2, "rgba8") as texture:
    ...         texture.upload(tm.full((2, 4, 4), 7, "uint8"))
    ...         assert texture.download(tm.zeros((2, 4, 4), "uint8")).tolist()[1][3] == [7, 7, 7, 7]
    """

    def __init__(
        self, width: int, height: int, format: TextureFormat | str = "rgba8", *, context: GlContext | None = None
    ) -> None:
        self.format = TextureFormat.parse(format)
        self.context = GlContext.default() if context is None else context
        most = self.context.max_texture_size
        if not (1 <= width <= most and 1 <= height <= most):
            raise errors.InvalidArgument(f"a texture here has 1 to {most} texels a side, not {width} x {height}")
        if self.format.external == c.GL_BGRA and self.context.api == "gles":
            raise errors.NotSupported("textures of bgra8 by OpenGL ES")
        self.width, self.height = width, height
        self.name: int = self.context.run(self._make)
        delete = self.context.calls.delete, "glDeleteTextures", self.name
        self._finalizer = weakref.finalize(self, self.context.site.post, *delete)
        self._finalizer.atexit = False

    @property
    def nbytes(self) -> int:
        """Bytes of all texels in memory, without gaps."""
        return self.width * self.height * self.format.texel_bytes

    def upload(self, source: Tensor) -> None:
        """Fill the texture from a tensor of shape (height, width, channels), whose rows may have gaps between them.

        From a pixel buffer this is only told to OpenGL; who writes the buffer next waits until it was read.
        """
        rows = PixelRows.of(source, self.width, self.height, self.format)
        buffer = self._buffer_of(source)
        if buffer is not None:
            self.context.run(self._write_from, buffer, source.offset, rows)
            return
        with source.map("r") as mapped:
            self.context.run(self._write, 0, mapped.ptr, rows)

    def download(self, into: Tensor) -> Tensor:
        """Read the texture into a tensor of shape (height, width, channels); gives the tensor.

        Into a pixel buffer this is only told to OpenGL; who reads the buffer next waits until it was written.
        """
        rows = PixelRows.of(into, self.width, self.height, self.format)
        if into.readonly:
            raise errors.InvalidArgument("the destination is read-only")
        buffer = self._buffer_of(into)
        if buffer is not None:
            self.context.run(self._read_into, buffer, into.offset, rows)
            return into
        with into.map("w") as mapped:
            self.context.run(self._read, 0, mapped.ptr, rows)
        return into

    def close(self) -> None:
        """Give the texture back; on the thread of its context, if that still runs."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Whether it was given back."""
        return not self._finalizer.alive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Texture {self.name}: {self.width} x {self.height} {self.format}>"

    def _buffer_of(self, tensor: Tensor) -> PixelBuffer | None:
        if self.closed:
            raise errors.UseAfterFree(self.name, 0, what="the texture was closed")
        owner = tensor.storage.owner
        if not isinstance(owner, PixelBuffer):
            return None
        if owner.context is not self.context:
            raise errors.InvalidArgument(f"{owner!r} is of another context than this texture")
        return owner

    # ---- On the thread of the context ----

    def _make(self) -> int:
        calls, format = self.context.calls, self.format
        with calls.borrowed(UNPACKING):
            name = calls.new("glGenTextures")
            try:
                calls("glBindTexture", c.GL_TEXTURE_2D, name)
                calls("glBindBuffer", c.GL_PIXEL_UNPACK_BUFFER, 0)
                size = format.internal, self.width, self.height, 0
                calls("glTexImage2D", c.GL_TEXTURE_2D, 0, *size, format.external, format.type, None)
                calls("glTexParameteri", c.GL_TEXTURE_2D, c.GL_TEXTURE_MAX_LEVEL, 0)
                for filter in (c.GL_TEXTURE_MIN_FILTER, c.GL_TEXTURE_MAG_FILTER):
                    calls("glTexParameteri", c.GL_TEXTURE_2D, filter, c.GL_NEAREST)
            except BaseException:
                calls.delete("glDeleteTextures", name)
                raise
        return name

    def _write_from(self, buffer: PixelBuffer, offset: int, rows: PixelRows) -> None:
        buffer.check_usable()
        self._write(buffer.name, offset, rows)
        buffer.mark_read()

    def _write(self, buffer: int, start: int, rows: PixelRows) -> None:
        calls, format = self.context.calls, self.format
        with calls.borrowed(UNPACKING):
            calls("glBindBuffer", c.GL_PIXEL_UNPACK_BUFFER, buffer)
            calls("glBindTexture", c.GL_TEXTURE_2D, self.name)
            length, alignment = rows.storing or (0, 1)
            calls("glPixelStorei", c.GL_UNPACK_ROW_LENGTH, length)
            calls("glPixelStorei", c.GL_UNPACK_ALIGNMENT, alignment)
            for row, height in _pieces(rows):
                where = 0, row, self.width, height
                place = start + row * rows.pitch
                calls("glTexSubImage2D", c.GL_TEXTURE_2D, 0, *where, format.external, format.type, place)
            calls("glBindBuffer", c.GL_PIXEL_UNPACK_BUFFER, 0)

    def _read_into(self, buffer: PixelBuffer, offset: int, rows: PixelRows) -> None:
        buffer.check_usable()
        self._read(buffer.name, offset, rows)
        buffer.mark_written()

    def _read(self, buffer: int, start: int, rows: PixelRows) -> None:
        calls = self.context.calls
        with calls.borrowed(PACKING):
            calls("glBindBuffer", c.GL_PIXEL_PACK_BUFFER, buffer)
            length, alignment = rows.storing or (0, 1)
            calls("glPixelStorei", c.GL_PACK_ROW_LENGTH, length)
            calls("glPixelStorei", c.GL_PACK_ALIGNMENT, alignment)
            if self.context.api == "gl" and rows.storing is not None:
                calls("glBindTexture", c.GL_TEXTURE_2D, self.name)
                calls("glGetTexImage", c.GL_TEXTURE_2D, 0, self.format.external, self.format.type, start)
            else:
                self._read_by_framebuffer(start, rows)
            calls("glBindBuffer", c.GL_PIXEL_PACK_BUFFER, 0)

    def _read_by_framebuffer(self, start: int, rows: PixelRows) -> None:
        calls, format = self.context.calls, self.format
        frame = calls.new("glGenFramebuffers")
        try:
            calls("glBindFramebuffer", c.GL_READ_FRAMEBUFFER, frame)
            attached = c.GL_READ_FRAMEBUFFER, c.GL_COLOR_ATTACHMENT0, c.GL_TEXTURE_2D, self.name, 0
            calls("glFramebufferTexture2D", *attached)
            if calls("glCheckFramebufferStatus", c.GL_READ_FRAMEBUFFER) != c.GL_FRAMEBUFFER_COMPLETE:
                raise errors.NotSupported(f"reading textures of {format} by {self.context!r}")
            for row, height in _pieces(rows):
                where = 0, row, self.width, height
                calls("glReadPixels", *where, format.external, format.type, start + row * rows.pitch)
        finally:
            calls("glBindFramebuffer", c.GL_READ_FRAMEBUFFER, 0)
            calls.delete("glDeleteFramebuffers", frame)


def _pieces(rows: PixelRows) -> list[tuple[int, int]]:
    """(first row, how many) of each call: all of them in one, or one each."""
    return [(0, rows.height)] if rows.storing is not None else [(row, 1) for row in range(rows.height)]
