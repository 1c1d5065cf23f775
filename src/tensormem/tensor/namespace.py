"""Owns: what makes `tensormem.tensor` a module that can be called: `tm.tensor([1, 2])` makes one, as in PyTorch.

Must not know: how it is made.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from tensormem.tensor.factories import tensor_from_values

if TYPE_CHECKING:
    import tensormem._core as _tensor
    from tensormem.drivers.where import WhereLike


class TensorModule(ModuleType):
    """A module that can be called."""

    if TYPE_CHECKING:
        # A type checker sees this class where the module is; its other names are those of the package.
        Tensor = _tensor.Tensor
        tensor_from_values = staticmethod(tensor_from_values)

    def __call__(
        self, data: Any, dtype: object = None, *, space: WhereLike | None = None, tag: str | None = None
    ) -> _tensor.Tensor:
        """A new tensor of the values in `data`: a number, nested lists of numbers, or the elements of another array."""
        return tensor_from_values(data, dtype, space=space, tag=tag)
