"""Owns: tensormem's resources, blocks and tensors as other libraries use them; one module per library.

A module is loaded when it is first named, and its library when it is first used. Must not know: reports, tools.

>>> import numpy as np
>>> import tensormem as tm
>>> from tensormem import interop
>>> mr = tm.mr.HostMemoryResource()
>>> with interop.numpy.use(mr):
...     squares = np.arange(1000) ** 2
>>> mr.bytes_outstanding == squares.nbytes
True
"""

from tensormem.lazy_names import load_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.interop import arrow as arrow
    from tensormem.interop import cupy as cupy
    from tensormem.interop import jax as jax
    from tensormem.interop import numba as numba
    from tensormem.interop import numpy as numpy
    from tensormem.interop import safetensors as safetensors
    from tensormem.interop import torch as torch
    from tensormem.interop import tvm_ffi as tvm_ffi

__all__ = ["arrow", "cupy", "jax", "numba", "numpy", "safetensors", "torch", "tvm_ffi"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load_name(__name__, name, {})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
