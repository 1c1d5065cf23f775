"""Owns: `GlFence`, a point in what OpenGL was told to do.

Must not know: what was told before it.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator
from typing import Any, Self

from tensormem import errors
from tensormem.awaitables import await_in_thread
from tensormem.construction import constructed_once
from tensormem.gl import constants as c
from tensormem.gl.calls import GlCalls
from tensormem.gl.context import GlContext

__all__ = ["GlFence"]

_SLICE = 1_000_000_000  # nanoseconds of one wait
_REACHED = (c.GL_ALREADY_SIGNALED, c.GL_CONDITION_SATISFIED)


@constructed_once
class GlFence:
    """A point in the work of a context: everything that was told before it is over when it is `done`.

    >>> from tensormem.gl import why_not
    >>> if why_not() is None:
    ...     fence = GlFence(GlContext.default())
    ...     fence.wait()
    ...     assert fence.done
    """

    def __init__(self, context: GlContext) -> None:
        self.context = context
        self._done = False
        self._sync = context.run(_insert, context.calls)
        self._finalizer = weakref.finalize(self, context.site.post, context.calls, "glDeleteSync", self._sync)
        self._finalizer.atexit = False

    @property
    def done(self) -> bool:
        """Whether OpenGL has come past this point."""
        if not self._done:
            self._reached(self.context.run(_look, self.context.calls, self._sync, 0))
        return self._done

    def wait(self) -> None:
        """Wait until OpenGL has come past this point."""
        while not self._done:
            self._reached(self.context.run(_look, self.context.calls, self._sync, _SLICE))

    def __await__(self) -> Generator[Any, None, Self]:
        """`await fence` waits like `wait()`, in a thread, while other tasks go on; gives the fence."""
        return await_in_thread(self.done, self.wait, self)

    def _reached(self, answer: int) -> None:
        if answer == c.GL_WAIT_FAILED:
            raise errors.DriverError(answer, "GL_WAIT_FAILED", "the wait failed", "glClientWaitSync", "gl")
        if answer in _REACHED:
            self._done = True
            self._finalizer()  # the sync object is of no more use


def _insert(calls: GlCalls) -> int:
    return int(calls("glFenceSync", c.GL_SYNC_GPU_COMMANDS_COMPLETE, 0))


def _look(calls: GlCalls, sync: int, nanoseconds: int) -> int:
    return int(calls("glClientWaitSync", sync, c.GL_SYNC_FLUSH_COMMANDS_BIT, nanoseconds))
