"""Owns: asking for OpenGL in a test, and a context that somebody else than tensormem made and made current."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# PyOpenGL decides when it is imported which library it speaks to.
os.environ.setdefault("PYOPENGL_PLATFORM", "egl")

# The fixture is in conftest.py: OpenGL is started by the first test that asks for it, not by collecting.
needs_opengl = pytest.mark.usefixtures("opengl")


class ForeignContext:
    """A core context of PyOpenGL's making, current on this thread."""

    def __init__(self) -> None:
        from OpenGL import EGL

        self._egl = EGL
        get_display = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(
            ctypes.cast(EGL.eglGetProcAddress(b"eglGetPlatformDisplayEXT"), ctypes.c_void_p).value or 0
        )
        self.display = ctypes.cast(get_display(0x31DD, None, None), EGL.EGLDisplay)
        EGL.eglInitialize(self.display, None, None)
        EGL.eglBindAPI(EGL.EGL_OPENGL_API)
        config, count = (EGL.EGLConfig * 1)(), EGL.EGLint()
        wanted = (EGL.EGLint * 3)(EGL.EGL_RENDERABLE_TYPE, EGL.EGL_OPENGL_BIT, EGL.EGL_NONE)
        EGL.eglChooseConfig(self.display, wanted, config, 1, count)
        version = (EGL.EGLint * 7)(0x3098, 4, 0x30FB, 5, 0x30FD, 1, EGL.EGL_NONE)
        self.context = EGL.eglCreateContext(self.display, config[0], EGL.EGL_NO_CONTEXT, version)
        self.make_current()

    def make_current(self) -> None:
        self._egl.eglMakeCurrent(self.display, self._egl.EGL_NO_SURFACE, self._egl.EGL_NO_SURFACE, self.context)

    def release_current(self) -> None:
        nothing = self._egl.EGL_NO_SURFACE, self._egl.EGL_NO_SURFACE, self._egl.EGL_NO_CONTEXT
        self._egl.eglMakeCurrent(self.display, *nothing)

    def destroy(self) -> None:
        self.release_current()
        self._egl.eglDestroyContext(self.display, self.context)


@contextmanager
def foreign_context() -> Iterator[ForeignContext]:
    made = ForeignContext()
    try:
        yield made
    finally:
        made.release_current()
