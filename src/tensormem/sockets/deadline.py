"""Owns: how long somebody waits, and the error for having waited that long."""

from __future__ import annotations

import math
import time

from tensormem import errors

__all__ = ["ANSWER_SECONDS", "Deadline"]

ANSWER_SECONDS = 5.0
"""Seconds that a process of ours has to answer another one, or to take an answer. One that is stopped does neither."""


class Deadline:
    """A moment of the monotonic clock, or None for never.

    >>> Deadline(None).seconds is None, Deadline(0).seconds
    (True, 0.0)
    """

    __slots__ = ("end", "timeout")

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and (type(timeout) not in {int, float} or not 0 <= timeout <= 1e9):
            raise errors.InvalidArgument(f"a timeout is a number of seconds from 0 on, or None, not {timeout!r:.80}")
        self.timeout = timeout
        self.end = math.inf if timeout is None else time.monotonic() + timeout

    @property
    def seconds(self) -> float | None:
        """What is left."""
        return None if self.timeout is None else max(0.0, self.end - time.monotonic())

    def check(self, what: str) -> None:
        """`TimedOut` if it is over."""
        if time.monotonic() >= self.end:
            raise errors.TimedOut(self.timeout or 0.0, what=what)
