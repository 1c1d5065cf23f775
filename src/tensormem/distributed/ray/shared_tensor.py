"""Owns: a tensor that an actor hands to other actors without giving it up. Must not know: how Ray carries it."""

from __future__ import annotations

from tensormem import errors
from tensormem._core import Tensor

__all__ = ["SharedTensor", "share", "tensor_of"]


class SharedTensor:
    """A tensor in the result of a method with `tensor_transport="tensormem"`; who gets the result gets a `Tensor`.

    Only the actor that made it gets this object back when it is handed its own result; `tensor_of` takes either.

    >>> import tensormem as tm
    >>> share(tm.zeros(3, memory="shm"), readonly=True)
    SharedTensor(3 float32 of shm in main, read-only)
    """

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __repr__(self) -> str:
        tensor = self.tensor
        what = " x ".join(map(str, tensor.shape)) or "one"
        return (
            f"SharedTensor({what} {tensor.dtype} of {tensor.memory} in {tensor.space}{', read-only' * tensor.readonly})"
        )


def share(tensor: Tensor, *, readonly: bool = False) -> SharedTensor:
    """Let the result of an actor's method be this very memory, not a copy, for actors of the same node.

    Only in methods with `@ray.method(tensor_transport="tensormem")`; `register_transport` makes Ray know that name.
    Memory of kind shm or dma goes by descriptor inside a node; everything else, and to other nodes, goes as Ray carries
    it. Ray counts the references; until the last is gone the memory stays.

    >>> import tensormem as tm
    >>> share(tm.zeros(3)).tensor.shape
    (3,)
    """
    if not isinstance(tensor, Tensor):
        raise errors.InvalidArgument(f"only tensors are shared, not {type(tensor).__name__}; see tm.wrap")
    return SharedTensor(tensor.as_readonly() if readonly else tensor)


def tensor_of(value: SharedTensor | Tensor) -> Tensor:
    """The tensor in what an actor was handed, be it of another actor or its own.

    >>> import tensormem as tm
    >>> tensor = tm.zeros(3)
    >>> tensor_of(share(tensor)) is tensor_of(tensor)
    True
    """
    return value.tensor if isinstance(value, SharedTensor) else value
