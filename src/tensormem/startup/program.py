"""Owns: what a recorded program gets without a line of its own: the recording, with Python calls; NumPy's arrays, from
when NumPy is first imported; PyTorch's history of GPU memory. Must not know: the command line.
"""

from __future__ import annotations

from tensormem import _core
from tensormem.config import get_config
from tensormem.startup.imports import after_import
from tensormem.startup.torch_history import keep_history

__all__ = ["watch_program"]

_LEAST_BYTES = 64 * 1024


def watch_program() -> None:
    """Look on as the environment says (`TENSORMEM_TRACE_*`); nothing happens in a process that does not record."""
    if not _core.is_recording():
        return
    config = get_config()
    if config.trace_numpy:
        after_import("numpy", _watch_numpy)
    if config.trace_torch:
        after_import("torch", keep_history)


def _watch_numpy() -> None:
    from tensormem.interop import numpy

    size = get_config().trace_malloc
    numpy.watch(max(int(size), 1) if size.isdigit() else _LEAST_BYTES)
