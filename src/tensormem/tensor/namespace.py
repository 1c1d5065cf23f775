"""Owns: what makes `tensormem.tensor` a module that can be called: `tm.tensor([1, 2])` makes one, as in PyTorch.

Must not know: how it is made.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from tensormem._core import Tensor
from tensormem.tensor.factories import tensor_from_values

if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike


class TensorModule(ModuleType):
    """A module that can be called."""

    if TYPE_CHECKING:
        # A type checker sees this class where the module is.
        def __getattr__(self, name: str) -> Any: ...

    def __call__(
        self, data: Any, dtype: object = None, *, space: WhereLike | None = None, tag: str | None = None
    ) -> Tensor:
        """A new tensor of the values in `data`: a number, nested lists of numbers, or the elements of another array."""
        return tensor_from_values(data, dtype, space=space, tag=tag)
