"""Owns: which pools live in this process, so that reports can find them. Knows them weakly: it keeps nothing alive.

Must not know: what a pool is.
"""

import itertools
import weakref

__all__ = ["living", "remember"]

_numbers = itertools.count(1)
_pools: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()


def remember(pool: object) -> None:
    """A pool was made."""
    _pools[next(_numbers)] = pool


def living() -> list[tuple[int, object]]:
    """Every pool that somebody holds, with a number that none other has had; the oldest first."""
    # The references are listed in one step, so that other threads may make pools meanwhile.
    found = [(reference.key, reference()) for reference in _pools.valuerefs()]
    return sorted(((number, pool) for number, pool in found if pool is not None), key=lambda each: each[0])
