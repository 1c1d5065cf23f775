"""Owns: which libraries take read-only memory for writable, and refusing it to them.

DLPack says that memory is read-only by a flag, and PyTorch does not look at it: a write would change what nobody may
change, or end the process where pages are protected. Who asks is known by whose code calls. Must not know: tensors.
"""

from __future__ import annotations

import sys

__all__ = ["check_reader"]

_WITHOUT_READONLY = {"torch": "PyTorch"}


def check_reader() -> None:
    """`BufferError` if the caller of `__dlpack__` belongs to a library that has no read-only tensors."""
    try:
        asking = sys._getframe(1).f_globals.get("__name__", "")
    except ValueError:  # nothing of Python called
        return
    library = _WITHOUT_READONLY.get(asking.partition(".")[0])
    if library is not None:
        raise BufferError(
            f"{library} has no read-only tensors, and would write to this memory; "
            f"give it a copy: x.clone(), or {asking.partition('.')[0]}.from_dlpack(x, copy=True)"
        )
