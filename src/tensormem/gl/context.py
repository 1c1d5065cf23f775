"""Owns: `GlContext`, an OpenGL context of ours on its own thread, or one that the caller has made current.

Must not know: buffers and textures; they are given a context and let their calls run on it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from tensormem import errors
from tensormem.construction import begin_construction, constructed_once
from tensormem.gl import constants as c
from tensormem.gl.call_site import CallSite
from tensormem.gl.callers_thread import CallersThread
from tensormem.gl.calls import GlCalls
from tensormem.gl.display import EglContext, display
from tensormem.gl.library import library
from tensormem.gl.own_thread import OwnThread

__all__ = ["GlContext"]

_T = TypeVar("_T")


@constructed_once
class GlContext:
    """A context of OpenGL without a window, on a thread of its own. Any thread may use it: calls run on that thread.

    `api` is "gl" (core 4.5 down to 3.3), "gles" (3.2 down to 3.0) or None for the first that works.
    `GlContext.current()` takes the context that is current on the calling thread instead. When a context is closed,
    what uses it raises `PboDisconnected`; memory that somebody still has mapped stays until he is done.

    >>> from tensormem.gl import why_not
    >>> if why_not() is None:
    ...     with GlContext() as context:
    ...         assert context.version >= (3, 0) and not context.closed
    ...     assert context.closed
    """

    def __init__(self, api: str | None = None) -> None:
        if api not in (None, "gl", "gles"):
            raise errors.InvalidArgument(f"the interface is 'gl' or 'gles', not {api!r:.40}")
        made: list[EglContext] = []

        def opening() -> None:
            context = display().create_context(api)
            context.make_current()
            made.append(context)

        def closing() -> None:
            made[0].release_and_destroy()

        library()  # what is missing is said on this thread
        self._take(OwnThread("tensormem-gl", opening, closing), made[0].api, made[0].handle)

    @classmethod
    def current(cls) -> GlContext:
        """The EGL context that is current on this thread; asked twice, it is one object. It stays its owner's.

        GL is called only where it is current; from other threads it is `ContextMisuse`. What a garbage collector gives
        back elsewhere waits for the next call here, or for `drain()`. What you had bound is bound again afterwards.
        """
        known = _adopted.get(library().eglGetCurrentContext() or 0)
        if known is not None and not known.closed:
            return known
        site = CallersThread(library())
        made = cls.__new__(cls)
        begin_construction(made, GlContext)
        made._take(site, site.api, site.handle)
        _adopted[site.handle] = made
        return made

    @classmethod
    def default(cls) -> GlContext:
        """The context that is used where none is named: made when it is first needed, again if it was closed."""
        with _default_lock:
            held = _default.get("context")
            if held is None or held.closed:
                held = _default["context"] = cls()
            return held

    def _take(self, site: CallSite, api: str, handle: int) -> None:
        self._site, self.api, self.handle = site, api, handle
        self.foreign = isinstance(site, CallersThread)
        self.calls = GlCalls(library(), self.foreign)
        self.buffers: set[int] = set()
        """The names of the pixel buffers that were made on it and not given back."""
        self._finalizer = weakref.finalize(self, site.shut)
        self._finalizer.atexit = False  # what runs there is left when the streams are done
        try:
            site.call(self._look)
        except BaseException:
            site.close()
            raise

    def _look(self) -> None:
        calls = self.calls
        self.vendor, self.renderer = calls.text(c.GL_VENDOR), calls.text(c.GL_RENDERER)
        self.version = calls.integer(c.GL_MAJOR_VERSION), calls.integer(c.GL_MINOR_VERSION)
        numbers = range(calls.integer(c.GL_NUM_EXTENSIONS))
        self.extensions = frozenset(calls("glGetStringi", c.GL_EXTENSIONS, number).decode() for number in numbers)
        self.max_texture_size = calls.integer(c.GL_MAX_TEXTURE_SIZE)
        aligned = self.api == "gl" and (self.version >= (4, 2) or "GL_ARB_map_buffer_alignment" in self.extensions)
        self.map_alignment = calls.integer(c.GL_MIN_MAP_BUFFER_ALIGNMENT) if aligned else 1
        if self.version < ((3, 2) if self.api == "gl" else (3, 0)):
            raise errors.DriverUnavailable("gl", f"{self.api} {self.version} has no fences; 3.2 is needed, or ES 3.0")

    @property
    def storage_call(self) -> str | None:
        """How buffers that stay mapped are made here; None where they cannot be."""
        if self.api == "gl" and (self.version >= (4, 4) or "GL_ARB_buffer_storage" in self.extensions):
            return "glBufferStorage"
        return "glBufferStorageEXT" if "GL_EXT_buffer_storage" in self.extensions else None

    @property
    def has_named_maps(self) -> bool:
        """Whether buffers can be mapped without binding them."""
        return self.api == "gl" and (self.version >= (4, 5) or "GL_ARB_direct_state_access" in self.extensions)

    @property
    def site(self) -> CallSite:
        """Where the calls run."""
        return self._site

    @property
    def closed(self) -> bool:
        """Whether nothing can run on it any more: closed, destroyed by its owner, or of the process before a fork."""
        return self._site.gone is not None

    @property
    def gone(self) -> str | None:
        """Why nothing can run on it any more; None while it can."""
        return self._site.gone

    def run(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Run `function` where the context is current, and give what it gave. For GL calls of your own.

        >>> from tensormem.gl import why_not
        >>> GlContext.default().run(len, "four") if why_not() is None else 4
        4
        """
        result: _T = self._site.call(function, *arguments)
        return result

    def drain(self) -> None:
        """Run what garbage collectors left to be given back, or wait until it has been."""
        self._site.drain()

    def finish(self) -> None:
        """Wait until OpenGL has done everything that it was told on this context."""
        self._site.call(self.calls, "glFinish")

    def close(self) -> None:
        """Let go of it. Its buffers raise `PboDisconnected` from now on; what is mapped stays until it is unmapped."""
        self._finalizer.detach()
        self._site.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"closed: {self.gone}" if self.closed else f"{self.renderer}"
        return f"<GlContext {self.api} {'.'.join(map(str, self.version))}, {state}>"


_adopted: weakref.WeakValueDictionary[int, GlContext] = weakref.WeakValueDictionary()
_default: dict[str, GlContext] = {}
_default_lock = threading.Lock()


def _renew_lock() -> None:
    """In a forked child: another thread of the parent may have held it."""
    global _default_lock
    _default_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
