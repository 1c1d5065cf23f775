"""Owns: the functions of EGL and OpenGL on this machine: finding them when they are first called, why they are not
there, and a log of the calls for whoever wants to count them.

Nothing is opened before it is asked for. Must not know: displays, contexts, buffers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tensormem import errors
from tensormem.gl import constants, signatures

__all__ = ["GlLibrary", "library"]

_NEEDS = "install the packages libegl1 and libegl-mesa0 (Debian), or the EGL library of your graphics driver"


class GlLibrary:
    """EGL and OpenGL as this machine has them; every function of `signatures` is an attribute.

    >>> from tensormem.gl import library
    >>> try:
    ...     with library().logged() as calls:
    ...         _ = library().eglGetCurrentContext()
    ... except errors.DriverUnavailable:
    ...     calls = ["eglGetCurrentContext"]
    >>> calls
    ['eglGetCurrentContext']
    """

    def __init__(self, name: str = "libEGL.so.1") -> None:
        try:
            self._egl = ctypes.CDLL(name)
            self._find = self._egl.eglGetProcAddress
        except (OSError, AttributeError) as missing:
            raise errors.DriverUnavailable("egl", f"{name} cannot be used ({missing}); {_NEEDS}") from None
        self._find.restype, self._find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        self._start_over(None)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        signature = signatures.EGL.get(name) or signatures.GL.get(name)
        if signature is None:
            raise AttributeError(name)
        function = _logged(name, self._resolve(name, signature), self._log)
        vars(self)[name] = function
        return function

    def _resolve(self, name: str, signature: tuple[Any, ...]) -> Callable[..., Any]:
        address = self._find(name.encode()) or self._exported(name)
        if not address:
            raise errors.DriverUnavailable("egl", f"the libraries of this machine have no {name}; {_NEEDS}")
        # A prototype of its own: ctypes releases the GIL around every call made through it.
        return ctypes.CFUNCTYPE(*signature)(address)

    def _exported(self, name: str) -> int | None:
        try:
            return ctypes.cast(getattr(self._egl, name), ctypes.c_void_p).value
        except AttributeError:
            return None

    @contextmanager
    def logged(self) -> Iterator[list[str]]:
        """The names of the functions called meanwhile, on any thread, in order."""
        calls: list[str] = []
        self._start_over(calls)
        try:
            yield calls
        finally:
            self._start_over(None)

    def _start_over(self, log: list[str] | None) -> None:
        self._log: list[str] | None = log
        for name in [name for name in vars(self) if name in signatures.EGL or name in signatures.GL]:
            del vars(self)[name]
        _ = self.eglGetError  # looking for it later would clear the error that it is to give


def _logged(name: str, function: Callable[..., Any], log: list[str] | None) -> Callable[..., Any]:
    if log is None:
        return function

    def call(*arguments: Any) -> Any:
        log.append(name)
        return function(*arguments)

    return call


@cache
def library() -> GlLibrary:
    """The library of this process; `DriverUnavailable` says why there is none.

    >>> from tensormem.gl import why_not
    >>> library() is library() if why_not() is None else True
    True
    """
    return GlLibrary()


def gl_failure(code: int, call: str) -> errors.DriverError:
    """The error for what `glGetError` gave after `call`."""
    name, explanation = constants.GL_ERRORS.get(code, (f"{code:#06x}", "an error that OpenGL does not name"))
    return errors.DriverError(code, name, explanation, call, "gl")


def egl_failure(egl: GlLibrary, call: str) -> errors.DriverError:
    """The error for an EGL call that failed just now on this thread."""
    code = egl.eglGetError()
    name, explanation = constants.EGL_ERRORS.get(code, (f"{code:#06x}", "an error that EGL does not name"))
    return errors.DriverError(code, name, explanation, call, "egl")
