"""Owns: how far the clock of another machine is from ours, by round trips.

Many are made and the quickest is believed: its answer was read somewhere within it, so its middle is wrong by at most
half of it. Processes of one machine have one monotonic clock, and need no estimate. Must not know: traces, engines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from tensormem.distributed.cluster_node import boot_id
from tensormem.errors import InvalidArgument

__all__ = ["ClockOffset", "ClockReading", "estimate_offset", "read_clock"]


class ClockOffset(NamedTuple):
    """What to add to another machine's monotonic clock to have ours, and by how much that may be wrong.

    >>> ClockOffset(-5_000, 200).offset_ns
    -5000
    """

    offset_ns: int
    error_ns: int


class ClockReading(NamedTuple):
    """A moment on the monotonic clock of a machine, and which start of which machine that is."""

    boot: str
    monotonic_ns: int


def read_clock() -> ClockReading:
    """The clock of this machine, for somebody who asks over the network.

    >>> read_clock().boot == read_clock().boot
    True
    """
    return ClockReading(boot_id(), time.monotonic_ns())


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
    best: ClockOffset | None = None
    for _ in range(rounds):
        sent = time.monotonic_ns()
        boot, there = read_there()
        back = time.monotonic_ns()
        if boot == boot_id():
            return ClockOffset(0, 0)
        half = (back - sent + 1) // 2
        if best is None or half < best.error_ns:
            best = ClockOffset(sent + half - there, half)
    assert best is not None
    return best
