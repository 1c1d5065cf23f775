"""Owns: how each function of EGL and OpenGL that is used here is called: what it gives back, and what it takes.

Declared from the specifications. Must not know: where a function is found.
"""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int32, c_ssize_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, Final

__all__ = ["EGL", "GL"]

_int, _uint, _bool, _size, _handle, _text = c_int32, c_uint32, c_uint8, c_ssize_t, c_void_p, c_char_p
_ints, _uints, _handles = POINTER(c_int32), POINTER(c_uint32), POINTER(c_void_p)

EGL: Final[dict[str, tuple[Any, ...]]] = {
    # name: (result, arguments...)
    "eglGetError": (_int,),
    "eglQueryString": (_text, _handle, _int),
    "eglGetPlatformDisplayEXT": (_handle, _uint, _handle, _ints),
    "eglQueryDevicesEXT": (_uint, _int, _handles, _ints),
    "eglInitialize": (_uint, _handle, _ints, _ints),
    "eglBindAPI": (_uint, _uint),
    "eglQueryAPI": (_uint,),
    "eglChooseConfig": (_uint, _handle, _ints, _handles, _int, _ints),
    "eglCreateContext": (_handle, _handle, _handle, _handle, _ints),
    "eglDestroyContext": (_uint, _handle, _handle),
    "eglMakeCurrent": (_uint, _handle, _handle, _handle, _handle),
    "eglGetCurrentContext": (_handle,),
    "eglGetCurrentDisplay": (_handle,),
    "eglQueryContext": (_uint, _handle, _handle, _int, _ints),
    "eglReleaseThread": (_uint,),
    "eglCreateImageKHR": (_handle, _handle, _handle, _uint, _handle, _ints),
    "eglDestroyImageKHR": (_uint, _handle, _handle),
}

GL: Final[dict[str, tuple[Any, ...]]] = {
    "glGetError": (_uint,),
    "glGetString": (_text, _uint),
    "glGetStringi": (_text, _uint, _uint),
    "glGetIntegerv": (None, _uint, _ints),
    "glFinish": (None,),
    "glGenBuffers": (None, _int, _uints),
    "glDeleteBuffers": (None, _int, _uints),
    "glIsBuffer": (_bool, _uint),
    "glBindBuffer": (None, _uint, _uint),
    "glBufferData": (None, _uint, _size, _handle, _uint),
    "glBufferStorage": (None, _uint, _size, _handle, _uint),
    "glBufferStorageEXT": (None, _uint, _size, _handle, _uint),
    "glMapBufferRange": (_handle, _uint, _size, _size, _uint),
    "glUnmapBuffer": (_bool, _uint),
    "glMapNamedBufferRange": (_handle, _uint, _size, _size, _uint),
    "glUnmapNamedBuffer": (_bool, _uint),
    "glGenTextures": (None, _int, _uints),
    "glDeleteTextures": (None, _int, _uints),
    "glBindTexture": (None, _uint, _uint),
    "glTexImage2D": (None, _uint, _int, _int, _int, _int, _int, _uint, _uint, _handle),
    "glEGLImageTargetTexture2DOES": (None, _uint, _handle),
    "glTexParameteri": (None, _uint, _uint, _int),
    "glTexSubImage2D": (None, _uint, _int, _int, _int, _int, _int, _uint, _uint, _handle),
    "glGetTexImage": (None, _uint, _int, _uint, _uint, _handle),
    "glPixelStorei": (None, _uint, _int),
    "glGenFramebuffers": (None, _int, _uints),
    "glDeleteFramebuffers": (None, _int, _uints),
    "glBindFramebuffer": (None, _uint, _uint),
    "glFramebufferTexture2D": (None, _uint, _uint, _uint, _uint, _int),
    "glCheckFramebufferStatus": (_uint, _uint),
    "glReadPixels": (None, _int, _int, _int, _int, _uint, _uint, _handle),
    "glFenceSync": (_handle, _uint, _uint),
    "glClientWaitSync": (_uint, _handle, _uint, c_uint64),
    "glDeleteSync": (None, _handle),
}
