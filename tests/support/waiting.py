"""Owns: waiting for what another process or thread is about to do. Must not know: what that is."""

import time
from collections.abc import Callable

# Long enough for a machine under load; what hangs reaches it, and then the test has failed.
TIME_LIMIT = 50.0


def eventually(fact: Callable[[], bool], what: str) -> None:
    """Returns when the fact is true; fails with `what` if it never becomes so."""
    end = time.monotonic() + TIME_LIMIT
    while not fact():
        assert time.monotonic() < end, what
        time.sleep(0.01)
