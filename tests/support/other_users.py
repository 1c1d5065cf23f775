"""Owns: processes that run as another user of this machine, and what they report. Only root can make them."""

import os
import pickle
import pwd
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def free_uid(start: int = 54_321) -> int:
    """A number that no user of this machine has."""
    taken = {each.pw_uid for each in pwd.getpwall()}
    return next(uid for uid in range(start, start + 1000) if uid not in taken)


class OtherUser:
    """A forked child that dropped to `uid`, runs `body`, reports what that returns, and stays until it is closed.

    What `body` needs must be imported before: the files of this interpreter may not be readable for others.
    """

    def __init__(self, body: Callable[[], Any], uid: int) -> None:
        told, tell = os.pipe()
        stays, leave = os.pipe()
        self.uid = uid
        self.pid = os.fork()
        if self.pid == 0:
            os.close(leave)
            os.close(told)
            self._run(body, uid, tell, stays)
        os.close(tell)
        os.close(stays)
        self._told, self._leave = told, leave
        self.report = self._hear()

    @staticmethod
    def _run(body: Callable[[], Any], uid: int, tell: int, stays: int) -> None:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            kept = body()
            os.write(tell, pickle.dumps(kept if not isinstance(kept, tuple) else kept[0]))
        except BaseException:
            os.write(tell, pickle.dumps(RuntimeError(traceback.format_exc())))
        os.close(tell)
        os.read(stays, 1)
        os._exit(0)

    def _hear(self) -> Any:
        with os.fdopen(self._told, "rb") as pipe:
            report = pickle.load(pipe)  # not to its end: others that were forked meanwhile have it too
        if isinstance(report, RuntimeError):
            self.close()
            raise report
        return report

    def close(self) -> None:
        """Let it end."""
        if self.pid:
            os.close(self._leave)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


@contextmanager
def other_user(body: Callable[[], Any], uid: int | None = None) -> Iterator[OtherUser]:
    """The other user, while the test goes on. Of a tuple only the first item is reported; the rest is kept alive."""
    child = OtherUser(body, free_uid() if uid is None else uid)
    try:
        yield child
    finally:
        child.close()


def outcome(attempt: Callable[[], Any]) -> str:
    """The name of the error that an attempt ended in, or "done"."""
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "done"
