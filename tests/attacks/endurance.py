"""Owns: the watch over a process that works while the soak runs: its memory, descriptors and threads stay bounded.

    python -m attacks.endurance SECONDS    prints one line of figures every so often

Must not know: the attacks that run beside it.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

import tensormem as tm
from attacks.live_objects import MAKERS, new_path
from tensormem import errors, mr, pools

__all__ = ["Figures", "grown", "main"]

# What a process may grow by between the first and the last third of its life: caches of Python and of the C library.
_MOST = {"resident_bytes": 24 << 20, "descriptors": 8, "threads": 4}


class Figures(NamedTuple):
    """A process at one moment."""

    seconds: float
    resident_bytes: int
    descriptors: int
    threads: int


def _figures(start: float) -> Figures:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    counts = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    return Figures(time.monotonic() - start, resident, *counts)


def grown(seen: list[Figures]) -> dict[str, tuple[int, int]]:
    """What grew for good, as (first third, last third). Empty: all is bounded."""
    third = len(seen) // 3
    if third == 0:
        return {}
    found = {}
    for name, most in _MOST.items():
        first = int(statistics.median(getattr(each, name) for each in seen[third : 2 * third]))
        last = int(statistics.median(getattr(each, name) for each in seen[-third:]))
        if last - first > most:
            found[name] = first, last
    return found


def _step(draw: Random) -> None:
    """Something of everything."""
    try:
        made = MAKERS[draw.choice(list(MAKERS))]()
        repr(made)
        getattr(made, "close", lambda: None)()
    except (errors.TensormemError, TypeError):  # some are closed by who made them
        pass
    pool = mr.PoolMemoryResource(mr.HostMemoryResource())
    blocks = [pool.allocate(draw.randrange(1, 100_000)) for _ in range(20)]
    for block in blocks:
        pool.deallocate(block)
    with pools.VirtualMemoryPool("64MiB", "64KiB") as pages:
        held = [pages.allocate(size=draw.randrange(1, 2**18)) for _ in range(8)]
        for each in held[::2]:
            pages.deallocate(each)
        pages.compact()
    tensor = tm.full((64, 64), 3, memory=draw.choice(["mem", "shm"]))
    tensor[1:].clone().tolist()
    path = new_path(".tmt")
    with tm.trace(path):
        tm.zeros(100)
    with tm.trace.open(path) as trace:
        trace.lifetimes()
    path.unlink()


def main() -> None:
    """Works until the time is over."""
    seconds, draw, start = float(sys.argv[1]), Random(7), time.monotonic()
    told, number = 0.0, 0
    while (now := time.monotonic() - start) < seconds:
        _step(draw)
        number += 1
        for path in Path.cwd().glob("file-*"):
            path.unlink()
        if now - told >= min(5.0, seconds / 200):
            told = now
            gc.collect()
            print(*_figures(start), flush=True)


if __name__ == "__main__":
    main()
