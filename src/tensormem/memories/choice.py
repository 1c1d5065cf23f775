"""Owns: which kind of memory a tensor gets when nobody names one, and the reason that is given for it.

Must not know: how a kind is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, SupportsIndex

from tensormem import errors
from tensormem._core import Storage
from tensormem.config import get_config
from tensormem.memories.kinds import TensorMemory
from tensormem.memories.registry import allocate_kind
from tensormem.spaces import main

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["allocate_for"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})
# What to try for a use, best first; whatever else is wanted is plain memory.
_PREFERENCES: dict[str, tuple[TensorMemory, ...]] = {
    "share": (TensorMemory.SHM,),
    "gpu": (TensorMemory.DMA, TensorMemory.PBO, TensorMemory.MEM),
}


def allocate_for(
    nbytes: SupportsIndex, use: str | None = None, space: WhereLike = main, options: Mapping[str, Any] = _NOTHING
) -> Storage:
    """A storage of the best kind there is for `use`: "share", "gpu" or None; its `reason` says why it is this kind.

    `options` are what `allocate` takes by name.

    >>> allocate_for(64).reason
    'nothing was asked for, and plain memory is always there'
    """
    if use is None:
        storage = allocate_kind(nbytes, TensorMemory.MEM, space, options)
        storage.reason = "nothing was asked for, and plain memory is always there"
        return storage
    if use not in _PREFERENCES:
        raise errors.InvalidArgument(f"use is one of {', '.join(_PREFERENCES)}, not {use!r:.40}")
    if get_config().force_mem:
        storage = allocate_kind(nbytes, TensorMemory.MEM, space, options)
        storage.reason = f"TENSORMEM_FORCE_MEM is set; it is for {use!r}"
        return storage
    return _first_that_works(nbytes, use, space, options)


def _first_that_works(nbytes: SupportsIndex, use: str, space: WhereLike, options: Mapping[str, Any]) -> Storage:
    refused: list[str] = []
    for kind in _PREFERENCES[use]:
        try:
            storage = allocate_kind(nbytes, kind, space, options)
        except errors.MemoryUnavailable as missing:
            refused.append(f"no {kind}: {missing.reason}")
            continue
        storage.reason = "; ".join([f"the best for {use!r} that works here", *refused])
        return storage
    raise errors.MemoryUnavailable(str(_PREFERENCES[use][0]), "; ".join(refused))
