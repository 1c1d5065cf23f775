"""Owns: tensors as JAX arrays and back, by DLPack. JAX is loaded when it is first used.

JAX's arrays never change, so theirs come in read-only, and memory of ours that goes out must not be written any more.
Must not know: anything of JAX but its two DLPack functions.

>>> import tensormem as tm
>>> tm.interop.jax.from_jax(jax.numpy.arange(3.0)).tolist()  # doctest: +SKIP
[0.0, 1.0, 2.0]
"""

from typing import Any

from tensormem.interop.library import load
from tensormem.public_functions import explain_misspellings
from tensormem.tensor import Tensor, from_dlpack

__all__ = ["from_jax", "to_jax"]


def from_jax(array: Any) -> Tensor:
    """A read-only tensor over the memory of a JAX array."""
    return from_dlpack(array).as_readonly()


def to_jax(tensor: Tensor, *, copy: bool | None = None) -> Any:
    """A JAX array of the tensor's values, over its memory where JAX can (64-byte alignment, no gaps), else a copy.

    With `copy` False it is an error where JAX cannot; with True it always copies. Do not write to shared memory.
    """
    jax = load("jax", "jax")
    # JAX takes dense memory only, and says so with an assertion.
    source = tensor if tensor.is_contiguous or copy is False else tensor.contiguous()
    return jax.numpy.from_dlpack(source, copy=copy)


explain_misspellings(globals())
