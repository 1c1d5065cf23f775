"""Owns: `DmaTexture`, a texture of OpenGL over the bytes of a DMA-BUF themselves: nothing is uploaded.

EGL is given the descriptor, the row pitch and the format by its FourCC, and OpenGL takes the image for a texture. Must
not know: how the buffer was made.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

from tensormem import errors
from tensormem._core import Tensor
from tensormem.gl import GlContext, Texture, TextureFormat, library
from tensormem.gl import constants as c
from tensormem.gl.display import display
from tensormem.gl.display import why_not as why_no_gl
from tensormem.gl.library import egl_failure
from tensormem.gl.pixel_rows import PixelRows
from tensormem.memories.dma.buffer import DmaBuffer

__all__ = ["DmaTexture", "why_no_textures"]

_IMPORT: Final = "EGL_EXT_image_dma_buf_import"
_TARGET: Final = "GL_OES_EGL_image"

# DRM's names of the formats; they name the channels from the highest bit of a little-endian word down.
_FOURCC: Final = {"r8": b"R8  ", "rg8": b"GR88", "rgb8": b"BG24", "rgba8": b"AB24", "bgra8": b"AR24"}


def why_no_textures(context: GlContext | None = None) -> str | None:
    """Why OpenGL cannot take DMA-BUFs for textures here; None where it can.

    >>> why_no_textures() is None or isinstance(why_no_textures(), str)
    True
    """
    reason = why_no_gl()
    if reason is not None:
        return reason
    if _IMPORT not in display().extensions:
        vendor = (library().eglQueryString(display().handle, c.EGL_VENDOR) or b"").decode("ascii", "replace")
        return f"EGL of this machine ({vendor}) does not offer {_IMPORT}; that of a newer driver may"
    used = GlContext.default() if context is None else context
    return None if _TARGET in used.extensions else f"{used!r} does not offer {_TARGET}"


class DmaTexture(Texture):
    """A texture over the image in a tensor of kind `dma`, shape (height, width, channels): the same bytes, no copy.

    What the CPU writes in a `map("w")` is seen by whoever samples the texture after it. What OpenGL draws into it is
    seen by a `map("r")` after `context.finish()` or a fence. The tensor is kept as long as the texture.

    >>> import tensormem as tm
    >>> from tensormem.memories import dma
    >>> if dma.why_not() is None and why_no_textures() is None:
    ...     frame = tm.full((2, 64, 4), 7, "uint8", memory="dma")
    ...     with DmaTexture(frame, "rgba8") as texture:
    ...         assert texture.download(tm.zeros((2, 64, 4), "uint8")).tolist() == frame.tolist()
    """

    def __init__(
        self, image: Tensor, format: TextureFormat | str = "rgba8", *, context: GlContext | None = None
    ) -> None:
        described = TextureFormat.parse(format)
        if described.name not in _FOURCC:
            raise errors.InvalidArgument(f"a DMA-BUF is a texture of {', '.join(_FOURCC)}, not {described}")
        owner = image.storage.owner
        if not isinstance(owner, DmaBuffer):
            raise errors.InvalidArgument(
                f"the tensor is of {image.memory} memory, not of dma; use gl.Texture and upload"
            )
        if image.ndim not in (2, 3):
            raise errors.InvalidArgument(f"an image has a shape (height, width, channels), not {image.shape}")
        used = GlContext.default() if context is None else context
        reason = why_no_textures(used)
        if reason is not None:
            raise errors.NotSupported(reason)
        height, width = image.shape[:2]
        self.tensor = image
        self._rows = PixelRows.of(image, width, height, described)
        self._buffer = owner
        super().__init__(width, height, described, context=used)

    # ---- On the thread of the context ----

    def _make(self) -> int:
        calls = self.context.calls
        image = self._create_image()
        before = calls.integer(c.GL_TEXTURE_BINDING_2D)
        try:
            name = calls.new("glGenTextures")
            try:
                calls("glBindTexture", c.GL_TEXTURE_2D, name)
                calls("glEGLImageTargetTexture2DOES", c.GL_TEXTURE_2D, image)
                for filter in (c.GL_TEXTURE_MIN_FILTER, c.GL_TEXTURE_MAG_FILTER):
                    calls("glTexParameteri", c.GL_TEXTURE_2D, filter, c.GL_NEAREST)
            except BaseException:
                calls.delete("glDeleteTextures", name)
                raise
            finally:
                calls("glBindTexture", c.GL_TEXTURE_2D, before)
        finally:
            library().eglDestroyImageKHR(display().handle, image)  # the texture holds what it needs of it
        return name

    def _create_image(self) -> int:
        fd = self._buffer.export_fd()  # lent to EGL, which takes its own
        try:
            fourcc = int.from_bytes(_FOURCC[self.format.name], "little")
            place = [c.EGL_DMA_BUF_PLANE0_OFFSET_EXT, self.tensor.offset, c.EGL_DMA_BUF_PLANE0_PITCH_EXT, self._pitch]
            wanted = [c.EGL_WIDTH, self.width, c.EGL_HEIGHT, self.height, c.EGL_LINUX_DRM_FOURCC_EXT, fourcc]
            wanted += [c.EGL_DMA_BUF_PLANE0_FD_EXT, fd, *place, c.EGL_NONE]
            attributes = (ctypes.c_int32 * len(wanted))(*wanted)
            handle = library().eglCreateImageKHR(display().handle, None, c.EGL_LINUX_DMA_BUF_EXT, None, attributes)
            if not handle:
                raise egl_failure(library(), f"eglCreateImageKHR of a DMA-BUF with rows of {self._pitch} bytes")
            return int(handle)
        finally:
            os.close(fd)

    @property
    def _pitch(self) -> int:
        return max(self._rows.pitch, self.width * self.format.texel_bytes)
