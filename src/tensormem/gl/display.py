"""Owns: the EGL display without a screen, and the contexts made on it: which platform, which interface and version.

The display is shared by the whole process and never terminated: others may use the same one. Must not know: threads,
buffers.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

from tensormem import errors
from tensormem.gl import constants as c
from tensormem.gl.library import GlLibrary, egl_failure, library

__all__ = ["Display", "EglContext", "why_not"]

_VERSIONS = {
    "gl": ((4, 5), (4, 3), (3, 3)),
    "gles": ((3, 2), (3, 1), (3, 0)),
}
_APIS = {"gl": c.EGL_OPENGL_API, "gles": c.EGL_OPENGL_ES_API}
_RENDERABLE = {"gl": c.EGL_OPENGL_BIT, "gles": c.EGL_OPENGL_ES3_BIT}


class EglContext:
    """One context on a display. It belongs to no thread until it is made current on one.

    >>> issubclass(EglContext, object)
    True
    """

    def __init__(self, egl: GlLibrary, display: int, handle: int, api: str) -> None:
        self._egl = egl
        self.display, self.handle, self.api = display, handle, api

    def make_current(self) -> None:
        """Let the GL calls of this thread go to this context; where that fails, it is given back."""
        self._egl.eglBindAPI(_APIS[self.api])
        if not self._egl.eglMakeCurrent(self.display, None, None, self.handle):
            failed = egl_failure(self._egl, "eglMakeCurrent")
            self.destroy()
            raise failed

    def destroy(self) -> None:
        """Give the context back; its objects go with it, unless another context shares them."""
        self._egl.eglDestroyContext(self.display, self.handle)

    def release_and_destroy(self) -> None:
        """The same on the thread where it is current, whose GL calls go nowhere from then on."""
        self._egl.eglMakeCurrent(self.display, None, None, None)
        self._egl.eglReleaseThread()
        self.destroy()


class Display:
    """An EGL display that needs no screen, initialised.

    >>> Display.__name__
    'Display'
    """

    def __init__(self, egl: GlLibrary) -> None:
        self._egl = egl
        self.process = os.getpid()
        self._proven = False
        refused = []
        for platform, native in candidates(egl):
            try:
                self.handle = open_display(egl, platform, native)
                break
            except errors.DriverError as failed:
                refused.append(str(failed))
        else:
            raise errors.DriverUnavailable("egl", "; ".join(refused) or "EGL offers no platform without a screen here")
        self.extensions = _words(egl.eglQueryString(self.handle, c.EGL_EXTENSIONS))
        if "EGL_KHR_surfaceless_context" not in self.extensions:
            raise errors.DriverUnavailable("egl", "this display makes no contexts without a surface")

    def create_context(self, api: str | None = None) -> EglContext:
        """A context of OpenGL ("gl"), of OpenGL ES ("gles"), or of the first that works."""
        # Whoever else uses this display may have terminated it; initialising it again costs nothing where not.
        if not self._egl.eglInitialize(self.handle, None, None):
            raise egl_failure(self._egl, "eglInitialize")
        refused = []
        for kind in [api] if api else list(_VERSIONS):
            for version in _VERSIONS[kind]:
                try:
                    handle = make_context(self._egl, self.handle, kind, version, self._config(kind))
                    return EglContext(self._egl, self.handle, handle, kind)
                except errors.DriverError as failed:
                    refused.append(f"{kind} {version[0]}.{version[1]}: {failed.name}")
        raise errors.DriverUnavailable("gl", f"no context can be made ({'; '.join(refused)})")

    def prove(self) -> None:
        """Make a context and give it back, unless one was made before."""
        if not self._proven:
            self.create_context().destroy()
            self._proven = True

    def _config(self, api: str) -> int | None:
        if "EGL_KHR_no_config_context" in self.extensions:
            return None
        return find_config(self._egl, self.handle, c.EGL_SURFACE_TYPE, 0, c.EGL_RENDERABLE_TYPE, _RENDERABLE[api])


def make_context(
    egl: GlLibrary, display: int, api: str, version: tuple[int, int], config: int | None, share: int | None = None
) -> int:
    """The handle of a new context; the interface that was bound on this thread stays bound."""
    wanted = [c.EGL_CONTEXT_MAJOR_VERSION, version[0], c.EGL_CONTEXT_MINOR_VERSION, version[1]]
    if api == "gl":
        wanted += [c.EGL_CONTEXT_OPENGL_PROFILE_MASK, c.EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT]
    before = egl.eglQueryAPI()
    if not egl.eglBindAPI(_APIS[api]):
        raise egl_failure(egl, "eglBindAPI")
    try:
        handle = egl.eglCreateContext(display, config, share, _ints(*wanted, c.EGL_NONE))
        if not handle:
            raise egl_failure(egl, "eglCreateContext")
        return int(handle)
    finally:
        egl.eglBindAPI(before)


def find_config(egl: GlLibrary, display: int, *wanted: int) -> int:
    """The first configuration with these attributes."""
    found, count = (ctypes.c_void_p * 1)(), ctypes.c_int32()
    if not egl.eglChooseConfig(display, _ints(*wanted, c.EGL_NONE), found, 1, ctypes.byref(count)):
        raise egl_failure(egl, "eglChooseConfig")
    if count.value < 1 or not found[0]:
        raise errors.DriverError(0x3005, *c.EGL_ERRORS[0x3005], "eglChooseConfig", "egl")
    return int(found[0])


def candidates(egl: GlLibrary) -> Iterator[tuple[int, int | None]]:
    """The platforms that need no screen, best first: (platform, what it calls the device)."""
    offered = _words(egl.eglQueryString(None, c.EGL_EXTENSIONS))
    if "EGL_MESA_platform_surfaceless" in offered:
        yield c.EGL_PLATFORM_SURFACELESS_MESA, None
    if "EGL_EXT_platform_device" in offered and {"EGL_EXT_device_enumeration", "EGL_EXT_device_base"} & offered:
        devices, count = (ctypes.c_void_p * 16)(), ctypes.c_int32()
        if egl.eglQueryDevicesEXT(16, devices, ctypes.byref(count)):
            for device in devices[: count.value]:
                yield c.EGL_PLATFORM_DEVICE_EXT, device


def open_display(egl: GlLibrary, platform: int, native: int | None) -> int:
    """The handle of the display of a platform, initialised."""
    handle = egl.eglGetPlatformDisplayEXT(platform, native, None)
    if not handle:
        raise egl_failure(egl, "eglGetPlatformDisplayEXT")
    if not egl.eglInitialize(handle, None, None):
        raise egl_failure(egl, "eglInitialize")
    return int(handle)


def _words(text: bytes | None) -> frozenset[str]:
    return frozenset((text or b"").decode("ascii", "replace").split())


def _ints(*values: int) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(values))(*values)


_opened: dict[str, Display] = {}


def display() -> Display:
    """The display of this process; `DriverUnavailable` says why there is none.

    >>> display() is display() if why_not() is None else True
    True
    """
    known = _opened.get("display") or _opened.setdefault("display", Display(library()))
    if known.process != os.getpid():  # threads of the driver did not come along, and it would wait for them
        raise errors.DriverUnavailable(
            "gl", "OpenGL was started before this process was forked; start processes with multiprocessing's 'spawn'"
        )
    return known


def why_not() -> str | None:
    """Why no context can be made on this machine; None if one can. A context is really made, once.

    >>> why_not() is None or isinstance(why_not(), str)
    True
    """
    try:
        display().prove()
    except (errors.DriverUnavailable, errors.DriverError) as refused:
        return refused.reason if isinstance(refused, errors.DriverUnavailable) else str(refused)
    return None
