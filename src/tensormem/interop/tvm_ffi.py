"""Owns: tensors as tvm-ffi tensors and back, by the C exchange API of both. tvm-ffi is loaded when it is first used.

Must not know: anything of TVM but that. Functions compiled with tvm-ffi take our tensors as they are.

>>> import tensormem as tm
>>> tm.interop.tvm_ffi.to_tvm(tm.zeros(3)).shape  # doctest: +SKIP
(3,)
"""

from typing import Any

from tensormem.interop.library import load
from tensormem.public_functions import explain_misspellings
from tensormem.tensor import Tensor, from_dlpack

__all__ = ["from_tvm", "to_tvm"]


def from_tvm(tensor: Any) -> Tensor:
    """A tensor over the memory of a tvm-ffi tensor."""
    return from_dlpack(tensor)


def to_tvm(tensor: Tensor) -> Any:
    """A tvm-ffi tensor over the same memory."""
    return load("tvm_ffi", "apache-tvm-ffi").from_dlpack(tensor)


explain_misspellings(globals())
