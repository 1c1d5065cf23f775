"""Owns: PyTorch's own history of GPU memory, kept from when PyTorch starts CUDA, and written beside the recording when
the program ends and when memory runs out. `tensormem stats` and the others read it. Must not know: its format.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path

__all__ = ["history_path", "keep_history"]

_MOST_ENTRIES = 1_000_000  # about 1 KB each in PyTorch


def history_path(recording: str) -> Path:
    """Where the history of the program goes whose recording is this.

    >>> history_path("runs/run.tmt").name
    'run.torch.pickle'
    """
    path = Path(recording.replace("{pid}", str(os.getpid())))
    return path.with_name(f"{path.stem}.torch.pickle")


def keep_history() -> None:
    """Let PyTorch remember what it allocates on GPUs; to be called when it has been imported."""
    torch = sys.modules["torch"]
    if not hasattr(torch._C, "_cuda_record_memory_history"):
        return  # built without CUDA
    torch.cuda._lazy_call(_begin)


def _begin() -> None:
    torch = sys.modules["torch"]
    torch.cuda.memory._record_memory_history(max_entries=_MOST_ENTRIES)
    path = history_path(os.environ["TENSORMEM_TRACE"])

    def write(*shortage: object) -> None:
        torch.cuda.memory._dump_snapshot(str(path))

    torch._C._cuda_attach_out_of_memory_observer(write)
    atexit.register(write)
