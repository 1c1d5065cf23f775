"""Owns: tensormem on more than one machine: how tensors travel through Ray and Dask, and how their workers are set up.

There is no protocol of our own between nodes: the engines carry the bytes. Inside a node memory is handed over by
descriptor. A module is loaded when it is first named, and its engine when it is first used. Must not know: reports.
"""

from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.distributed import dask as dask
    from tensormem.distributed import ray as ray

__all__ = ["dask", "ray"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
