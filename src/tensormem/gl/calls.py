"""Owns: calling OpenGL on the thread where a context is current: every call is followed by a look for errors, and what
a caller's own context had bound is put back afterwards.

Must not know: which thread that is, or what is called for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tensormem import errors
from tensormem.gl import constants as c
from tensormem.gl.library import GlLibrary, gl_failure

__all__ = ["GlCalls"]

# What an operation touches, and what belongs to the caller in his own context: (how to ask, how to set, for what).
_State = tuple[int, str, int]
_TEXTURE: Final[_State] = (c.GL_TEXTURE_BINDING_2D, "glBindTexture", c.GL_TEXTURE_2D)
ALLOCATING: Final[tuple[_State, ...]] = ((c.GL_COPY_WRITE_BUFFER_BINDING, "glBindBuffer", c.GL_COPY_WRITE_BUFFER),)
UNPACKING: Final[tuple[_State, ...]] = (
    _TEXTURE,
    (c.GL_PIXEL_UNPACK_BUFFER_BINDING, "glBindBuffer", c.GL_PIXEL_UNPACK_BUFFER),
    (c.GL_UNPACK_ROW_LENGTH, "glPixelStorei", c.GL_UNPACK_ROW_LENGTH),
    (c.GL_UNPACK_SKIP_ROWS, "glPixelStorei", c.GL_UNPACK_SKIP_ROWS),
    (c.GL_UNPACK_SKIP_PIXELS, "glPixelStorei", c.GL_UNPACK_SKIP_PIXELS),
    (c.GL_UNPACK_ALIGNMENT, "glPixelStorei", c.GL_UNPACK_ALIGNMENT),
)
PACKING: Final[tuple[_State, ...]] = (
    _TEXTURE,
    (c.GL_PIXEL_PACK_BUFFER_BINDING, "glBindBuffer", c.GL_PIXEL_PACK_BUFFER),
    (c.GL_READ_FRAMEBUFFER_BINDING, "glBindFramebuffer", c.GL_READ_FRAMEBUFFER),
    (c.GL_PACK_ROW_LENGTH, "glPixelStorei", c.GL_PACK_ROW_LENGTH),
    (c.GL_PACK_SKIP_ROWS, "glPixelStorei", c.GL_PACK_SKIP_ROWS),
    (c.GL_PACK_SKIP_PIXELS, "glPixelStorei", c.GL_PACK_SKIP_PIXELS),
    (c.GL_PACK_ALIGNMENT, "glPixelStorei", c.GL_PACK_ALIGNMENT),
)
_SKIPS = (c.GL_UNPACK_SKIP_ROWS, c.GL_UNPACK_SKIP_PIXELS, c.GL_PACK_SKIP_ROWS, c.GL_PACK_SKIP_PIXELS)
_MOST_ERRORS = 16  # a lost context reports its loss for ever


class GlCalls:
    """Checked GL calls. Only for the thread on which the context is current.

    >>> issubclass(GlCalls, object)
    True
    """

    def __init__(self, gl: GlLibrary, foreign: bool) -> None:
        self._gl = gl
        self._foreign = foreign
        self.found_errors: list[str] = []
        """Errors that the owner of the context had not asked for when we came; asking clears them."""

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Call it; an error of OpenGL is raised under its name. One that the owner of the context left is not ours."""
        if self._foreign:
            self.found_errors += self._clear()
        result = getattr(self._gl, name)(*arguments)
        code = self._gl.glGetError()
        if code != c.GL_NO_ERROR:
            self._clear()
            if code == c.GL_CONTEXT_LOST:
                raise errors.PboDisconnected(c.GL_ERRORS[code][1], what=name)
            raise gl_failure(code, name)
        return result

    def integer(self, name: int) -> int:
        """The value of a state that is one number."""
        value = ctypes.c_int32()
        self("glGetIntegerv", name, ctypes.byref(value))
        return value.value

    def text(self, name: int) -> str:
        """The value of a state that is text."""
        return str((self("glGetString", name) or b"").decode("utf-8", "replace"))

    def new(self, generate: str) -> int:
        """The name of a new object, by `glGen...`."""
        made = ctypes.c_uint32()
        self(generate, 1, ctypes.byref(made))
        return made.value

    def delete(self, delete: str, name: int) -> None:
        """Give an object back, by `glDelete...`."""
        self(delete, 1, ctypes.byref(ctypes.c_uint32(name)))

    @contextmanager
    def borrowed(self, touched: tuple[_State, ...]) -> Iterator[None]:
        """In somebody else's context, put back afterwards what he had bound and set."""
        if not self._foreign:
            yield
            return
        before = [(setter, target, self.integer(question)) for question, setter, target in touched]
        for _, target, value in before:
            if target in _SKIPS and value:
                self("glPixelStorei", target, 0)
        try:
            yield
        finally:
            for setter, target, value in before:
                self(setter, target, value)

    def _clear(self) -> list[str]:
        found: list[str] = []
        while (code := self._gl.glGetError()) != c.GL_NO_ERROR and len(found) < _MOST_ERRORS:
            found.append(c.GL_ERRORS.get(code, (f"{code:#06x}",))[0])
        return found
