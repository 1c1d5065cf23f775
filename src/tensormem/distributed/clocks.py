"""Owns: how far the clock of another machine is from ours, by round trips.

Each says that the answer was read somewhere within it; together they leave the interval that all of them allow, and
half of that is the error. A clock that jumped in between leaves none: then the error is as large as the jump. Processes
of one machine, in one time namespace, have one monotonic clock and need no estimate. Must not know: traces, engines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from tensormem.distributed.cluster_node import boot_id
from tensormem.errors import InvalidArgument

__all__ = ["ClockOffset", "ClockReading", "clock_id", "estimate_offset", "read_clock"]


class ClockOffset(NamedTuple):
    """What to add to another machine's monotonic clock to have ours, and by how much that may be wrong.

    >>> ClockOffset(-5_000, 200).offset_ns
    -5000
    """

    offset_ns: int
    error_ns: int


class ClockReading(NamedTuple):
    """A moment on a monotonic clock, and which clock that is."""

    clock: str
    monotonic_ns: int


def clock_id() -> str:
    """What tells this clock from every other: the start of the machine, and the time namespace, which may be set off.

    >>> clock_id() == clock_id()
    True
    """
    try:
        return f"{boot_id()}/{os.stat('/proc/self/ns/time').st_ino}"
    except OSError:  # a kernel without such namespaces
        return boot_id()


def read_clock() -> ClockReading:
    """The clock of this machine, for somebody who asks over the network.

    >>> read_clock().clock == read_clock().clock
    True
    """
    return ClockReading(clock_id(), time.monotonic_ns())


def estimate_offset(read_there: Callable[[], ClockReading], rounds: int = 20) -> ClockOffset:
    """The offset of the clock that `read_there` reads over there from ours; exactly none for this machine.

    >>> estimate_offset(read_clock)
    ClockOffset(offset_ns=0, error_ns=0)
    >>> offset = estimate_offset(lambda: ClockReading("another", time.monotonic_ns() + 10**9))
    >>> abs(offset.offset_ns + 10**9) <= offset.error_ns
    True
    """
    if rounds < 1:
        raise InvalidArgument(f"an estimate needs at least one round, not {rounds}")
    least, most = [], []  # of the offset, by each round
    for _ in range(rounds):
        sent = time.monotonic_ns()
        clock, there = read_there()
        back = time.monotonic_ns()
        if clock == clock_id():
            return ClockOffset(0, 0)
        least.append(sent - there)
        most.append(back - there)
    low, high = max(least), min(most)
    if low > high:  # it jumped: nothing between them is sure
        low, high = min(least), max(most)
    return ClockOffset((low + high) // 2, (high - low + 1) // 2)
