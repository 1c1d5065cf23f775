"""Owns: the thread of a context of ours: a queue of calls, answers and exceptions that travel back, and its end.

Jobs never take a lock that their callers may hold, and posting takes none at all, so a garbage collector may post from
anywhere. Must not know: EGL or GL; opening and closing the context are two functions it is given.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from tensormem import errors
from tensormem._core import Latch, end_streams
from tensormem.gl.call_site import tell

__all__ = ["OwnThread"]

_CLOSED = "the context was closed"
_FORKED = "the context belongs to the process that this one was forked from"
_ENDED = "the interpreter is ending"
_PATIENCE = 5.0  # seconds that the end of the interpreter waits for a call that does not come back


class _Job:
    """A call that somebody may be waiting for."""

    __slots__ = ("_arguments", "_claimed", "_done", "_error", "_function", "_result", "last")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], last: bool, waited_for: bool) -> None:
        self._function, self._arguments, self.last = function, arguments, last
        self._result: Any = None
        self._error: BaseException | None = None
        self._claimed = threading.Lock()  # by whoever runs it, refuses it or gives it up, and never let go
        self._done = Latch() if waited_for else None

    def claim(self) -> bool:
        """Whether nobody did anything about it yet; whoever is told so decides what becomes of it."""
        return self._claimed.acquire(blocking=False)

    def run(self) -> None:
        """Only by who claimed it."""
        try:
            self._result = self._function(*self._arguments)
        except BaseException as error:
            self._error = error
        self._answer()

    def refuse(self, why: str) -> None:
        """Only by who claimed it."""
        if self._done is not None:
            self._error = errors.PboDisconnected(why)
            self._answer()

    def _answer(self) -> None:
        if self._done is not None:
            self._done.open()
        elif self._error is not None:
            tell(self._error)

    def wait(self) -> Any:
        """What it gave. An interrupt takes back a call that has not begun; it is raised after one that has, so that it
        is known whether it happened."""
        interrupt: BaseException | None = None
        while self._done is not None and not self._done.is_open:
            try:
                self._done.wait()
            except BaseException as raised:
                interrupt = raised
                if self.claim() or isinstance(raised, errors.TimedOut):  # or the interpreter ends
                    break
        error, self._error = interrupt or self._error, None
        try:
            if error is not None:
                raise error
            return self._result
        finally:
            del error, interrupt  # or the error would hold this frame, which holds the error


class OwnThread:
    """A thread on which a context is current from its start to its end.

    >>> site = OwnThread("doctest", lambda: None, lambda: None)
    >>> site.call(sum, [1, 2])
    3
    >>> site.close()
    """

    def __init__(self, name: str, opening: Callable[[], None], closing: Callable[[], None]) -> None:
        self.held: set[int] = set()
        self.gone: str | None = None
        """Why nothing can run here any more; None while it can."""
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._awaited: set[_Job] = set()
        self._closing = closing
        self._opened = self._leaving = self._over = False
        start = _Job(self._open, (opening,), last=False, waited_for=True)
        self._thread = threading.Thread(target=self._work, args=(start,), name=name, daemon=True)
        self._ident = 0  # of the thread while it runs; afterwards another one may get the number
        _running.add(self)
        self._thread.start()
        start.wait()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run it there and give what it gave, or raise what it raised."""
        if self.gone is not None:
            raise errors.PboDisconnected(self.gone)
        return self._run(function, arguments, last=False)

    def call_last(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The same for what ends a use: it also runs when the context was closed but is kept for somebody."""
        return self._run(function, arguments, last=True)

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...], last: bool) -> Any:
        if threading.get_ident() == self._ident:  # a garbage collector may run here too
            return function(*arguments)
        job = _Job(function, arguments, last, waited_for=True)
        self._awaited.add(job)
        try:
            self._put(job)
            return job.wait()
        finally:
            self._awaited.discard(job)

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let it run there some time, if it still can. For garbage collectors: it never waits and never fails."""
        self._put(_Job(function, arguments, last=True, waited_for=False))

    def _put(self, job: _Job) -> None:
        if self._over:
            self._refuse(job)
            return
        self._jobs.put(job)
        if self._over:  # the thread ended meanwhile: whoever sees it refuses what is left
            self._refuse_all()

    def drain(self) -> None:
        """Wait for everything that was posted before."""
        with suppress(errors.PboDisconnected):  # the thread is at its end, and has done what it could
            self._run(int, (), last=True)

    def let_go(self, buffer: int) -> None:
        """Nobody touches the memory of `buffer` any more."""
        if threading.get_ident() == self._ident:
            self.held.discard(buffer)
        else:
            self.post(self.held.discard, buffer)

    def close(self) -> None:
        """Let nothing new run here, and give the context back: now, or when nobody holds its memory any more."""
        self.shut()
        if self._over or threading.get_ident() == self._ident:
            return
        try:
            holding = self._run(bool, (self.held,), last=True)
        except errors.PboDisconnected:
            holding = False
        if not holding:  # and nothing new can be held: what begins a use is refused by now
            self._thread.join()

    def shut(self) -> None:
        """The same without waiting, for garbage collectors."""
        self.gone = self.gone or _CLOSED
        self._refuse_awaited()
        self.post(int)

    def leave(self) -> None:
        """End the thread with the interpreter, whoever still holds memory: the process gives all of it back."""
        self.gone = self.gone or _ENDED
        self._leaving = True
        self._refuse_awaited()
        self.post(int)
        self._thread.join(_PATIENCE)

    def forget(self) -> None:
        """In a forked child there is no thread, and its queue may be locked forever: never touch them again."""
        self.gone, self._over, self._ident = _FORKED, True, 0
        self._jobs = SimpleQueue()

    def _open(self, opening: Callable[[], None]) -> None:
        opening()
        self._opened = True

    def _work(self, start: _Job) -> None:
        self._ident = threading.get_ident()
        if start.claim():
            start.run()
        del start
        while self._opened and not (self._leaving or (self.gone is not None and not self.held)):
            job = self._jobs.get()
            self._serve(job)
            del job
        if self._opened and not self.held:
            while (last := self._next()) is not None:  # textures and buffers go before their context
                self._serve(last)
            self._closing()
        self._over, self._ident = True, 0
        self._refuse_all()

    def _serve(self, job: _Job) -> None:
        if self.gone is not None and not job.last:
            self._refuse(job)
        elif job.claim():
            job.run()

    def _refuse(self, job: _Job) -> None:
        if job.claim():
            job.refuse(self.gone or _CLOSED)

    def _refuse_awaited(self) -> None:
        """Wake those whose calls cannot begin any more; the thread may be busy for long."""
        for job in list(self._awaited):
            if not job.last:
                self._refuse(job)

    def _refuse_all(self) -> None:
        while (job := self._next()) is not None:
            self._refuse(job)

    def _next(self) -> _Job | None:
        try:
            return self._jobs.get_nowait()
        except Empty:
            return None


_running: weakref.WeakSet[OwnThread] = weakref.WeakSet()


@atexit.register
def _leave_all() -> None:
    end_streams()  # copies that they were given may need a context yet
    for site in list(_running):
        site.leave()


def _forget_all() -> None:
    for site in list(_running):
        site.forget()
    _running.clear()


os.register_at_fork(after_in_child=_forget_all)
