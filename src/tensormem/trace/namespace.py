"""Owns: what makes `tensormem.trace` a module that can be called: `tm.trace("run.tmt")` records, `tm.trace.open` reads.

Must not know: how either is done.
"""

from __future__ import annotations

from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tensormem.trace.opening import open_trace
from tensormem.trace.recording import Recording, counter, is_recording


class TraceModule(ModuleType):
    """A module that can be called."""

    if TYPE_CHECKING:
        # A type checker sees this class where the module is: the functions that are called on it most.
        open = staticmethod(open_trace)
        counter = staticmethod(counter)
        is_recording = staticmethod(is_recording)

        def __getattr__(self, name: str) -> Any: ...

    def __call__(
        self,
        path: str | PathLike[str],
        *,
        stacks: bool = False,
        overwrite: bool = False,
        flush_interval: float = 0.05,
    ) -> Recording:
        """A recording into `path`, which begins with `with`. With `stacks`, events have their Python calls."""
        return Recording(path, stacks=stacks, overwrite=overwrite, flush_interval=flush_interval)
