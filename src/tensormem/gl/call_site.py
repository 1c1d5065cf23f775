"""Owns: what a context asks of the place where its GL calls run, whoever's thread that is.

Two rooms fill it: `OwnThread`, a thread that was started for the context, and `CallersThread`, the thread on which
somebody else made the context current. Must not know: what the calls do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["CallSite", "tell"]


class CallSite(Protocol):
    """Where the GL calls of one context run.

    >>> CallSite.__name__
    'CallSite'
    """

    held: set[int]
    """Buffers whose memory somebody may be touching: while there are any, the context is kept alive, closed or not."""

    @property
    def gone(self) -> str | None:
        """Why nothing can run here any more; None while it can."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run it there and give what it gave, or raise what it raised."""

    def call_last(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The same for what ends a use: it also runs when the context was closed but is kept for somebody."""

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let it run there some time, if it still can. For garbage collectors: it never waits and never fails."""

    def drain(self) -> None:
        """Run, or wait for, everything that was posted before."""

    def let_go(self, buffer: int) -> None:
        """Nobody touches the memory of `buffer` any more."""

    def close(self) -> None:
        """Let nothing new run here, and give the context back as soon as nobody holds its memory."""

    def shut(self) -> None:
        """The same for garbage collectors: it never waits."""


def tell(error: BaseException) -> None:
    """Say what nobody waits for, as a thread says what ended it."""
    if not isinstance(error, BaseException):
        raise TypeError(f"an error is told, not {type(error).__name__}")
    told = type(error), error, error.__traceback__, threading.current_thread()
    threading.excepthook(threading.ExceptHookArgs(told))
