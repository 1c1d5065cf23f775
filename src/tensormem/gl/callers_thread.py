"""Owns: calls on a context that somebody else made: they run on the thread that has it current, and on no other.

What a garbage collector posts elsewhere waits for the next call there. A context beside it that shares its objects, and
is current on a thread that does nothing else, keeps mapped memory alive if the caller destroys his, or terminates the
display. Must not know: buffers.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from tensormem import errors
from tensormem.gl import constants as c
from tensormem.gl.call_site import tell
from tensormem.gl.display import EglContext, find_config, make_context
from tensormem.gl.library import GlLibrary
from tensormem.gl.own_thread import OwnThread

__all__ = ["CallersThread"]

_CLOSED = "the context was closed here"
_DESTROYED = "whoever made the context destroyed it"
_FORKED = "the context belongs to the process that this one was forked from"


class CallersThread:
    """The thread that has somebody's context current.

    >>> from tensormem.gl import GlContext, why_not
    >>> if why_not() is None:
    ...     try:
    ...         GlContext.current()
    ...     except errors.ContextMisuse as refused:
    ...         print(refused.what)
    ... else:
    ...     print("no EGL context is current on this thread")
    no EGL context is current on this thread
    """

    def __init__(self, egl: GlLibrary) -> None:
        self._egl = egl
        self.handle, self._display = egl.eglGetCurrentContext() or 0, egl.eglGetCurrentDisplay() or 0
        if not self.handle:
            raise errors.ContextMisuse(0, threading.get_ident(), what="no EGL context is current on this thread")
        self.api = "gl" if self._ask(c.EGL_CONTEXT_CLIENT_TYPE) == c.EGL_OPENGL_API else "gles"
        self.held: set[int] = set()
        self._gone: str | None = None
        self._posted: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._beside = self._make_beside()
        _adopted.add(self)

    @property
    def gone(self) -> str | None:
        """Why nothing can run here any more; None while it can."""
        if self._gone is None and self._ask(c.EGL_CONTEXT_CLIENT_TYPE) is None:
            self._end(_DESTROYED)
        return self._gone

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run it now. `ContextMisuse` on a thread that does not have the context current."""
        self._check()
        self._run_posted()
        return function(*arguments)

    def call_last(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run it now if the context is current here; otherwise it waits for the next call where it is."""
        if self._can_run():
            self._run_posted()
            return function(*arguments)
        if self.gone is not None:
            raise errors.PboDisconnected(self._gone or _CLOSED)
        self.post(function, *arguments)

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let it run at the next call on the thread."""
        if self.gone != _FORKED and self.gone != _DESTROYED:
            self._posted.append((function, arguments))

    def drain(self) -> None:
        """Run what garbage collectors posted from other threads; only where the context is current."""
        if self._gone is None:
            self._check()
        if self._can_run():
            self._run_posted()

    def let_go(self, buffer: int) -> None:
        """Nobody touches the memory of `buffer` any more."""
        self.held.discard(buffer)
        if self._gone is not None:
            self._drop_beside()

    def close(self) -> None:
        """Let nothing new run here. The context stays its owner's."""
        if self._can_run():
            self._run_posted()
        self._end(_CLOSED)

    shut = close

    def forget(self) -> None:
        """In a forked child the context is nobody's."""
        self._gone, self._beside = _FORKED, None
        self._posted.clear()

    def _check(self) -> None:
        if self.gone is not None:
            raise errors.PboDisconnected(self._gone or _CLOSED)
        if self._egl.eglGetCurrentContext() != self.handle:
            raise errors.ContextMisuse(self.handle, threading.get_ident(), what="it is not current on this thread")

    def _can_run(self) -> bool:
        return self.gone not in (_DESTROYED, _FORKED) and self._egl.eglGetCurrentContext() == self.handle

    def _run_posted(self) -> None:
        while True:
            try:
                function, arguments = self._posted.popleft()
            except IndexError:
                return
            try:
                function(*arguments)
            except Exception as error:  # not of the call that happens to come by
                tell(error)

    def _ask(self, attribute: int) -> int | None:
        value = ctypes.c_int32()
        if not self._egl.eglQueryContext(self._display, self.handle, attribute, ctypes.byref(value)):
            self._egl.eglGetError()
            return None
        return value.value

    def _make_beside(self) -> OwnThread | None:
        try:
            number = self._ask(c.EGL_CONFIG_ID)
            config = find_config(self._egl, self._display, c.EGL_CONFIG_ID, number) if number else None
            version = (3, 3) if self.api == "gl" else (3, 0)
            handle = make_context(self._egl, self._display, self.api, version, config, self.handle)
            beside = EglContext(self._egl, self._display, handle, self.api)
            return OwnThread("tensormem-gl-beside", beside.make_current, beside.release_and_destroy)
        except errors.DriverError:  # it shares with nobody: then its memory lives only as long as the context
            return None

    def _end(self, why: str) -> None:
        self._gone = self._gone or why
        if why == _DESTROYED:
            self._posted.clear()
        self._drop_beside()

    def _drop_beside(self) -> None:
        if not self.held:
            beside, self._beside = self._beside, None
            if beside is not None:
                beside.shut()


_adopted: weakref.WeakSet[CallersThread] = weakref.WeakSet()


def _forget_all() -> None:
    for site in list(_adopted):
        site.forget()
    _adopted.clear()


os.register_at_fork(after_in_child=_forget_all)
