"""Owns: the answer to whether this machine has a kind of memory, with the reason when not.

Must not know: any single kind; a provider says why not, if it can.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from tensormem import errors
from tensormem.memories.kinds import TensorMemory
from tensormem.memories.registry import MemoryProvider, find_provider

__all__ = ["Availability", "is_available"]


class Availability(NamedTuple):
    """Whether there is memory of a kind: true or false, and why not.

    >>> bool(Availability("shm", "")), bool(Availability("dma", "there is no /dev/dma_heap"))
    (True, False)
    """

    kind: str
    reason: str

    def __bool__(self) -> bool:
        return not self.reason


def is_available(kind: TensorMemory | str) -> Availability:
    """Whether memory of `kind` can be had here; if not, `reason` says why.

    >>> is_available("mem")
    Availability(kind='mem', reason='')
    """
    try:
        provider = find_provider(kind)
        asked = _question(provider)
        reason = asked() if asked is not None else None
    except errors.MemoryUnavailable as missing:
        reason = missing.reason
    return Availability(str(kind), str(reason or ""))


def _question(provider: MemoryProvider) -> Callable[[], str | None] | None:
    """Its `why_not`, or that of the module it stands in."""
    beside = sys.modules.get(getattr(provider, "__module__", ""))
    return getattr(provider, "why_not", None) or getattr(beside, "why_not", None)
