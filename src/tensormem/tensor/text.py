"""Owns: how a tensor looks: one or a few lines of text, and a small table for notebooks.

Must not know: how values are read. Large tensors show their edges; memory that the CPU does not reach shows none.
"""

from __future__ import annotations

from typing import Any

from tensormem._core import Tensor
from tensormem.errors import NotMapped, NotSupported
from tensormem.units import format_size

__all__ = ["html", "text"]

_EDGE = 3
_MANY = 6
_WIDE = 100


def text(tensor: Tensor) -> str:
    """What `repr` gives.

    >>> import tensormem as tm
    >>> print(text(tm.full((2, 10), 1, "int8")))
    tm.Tensor([[1, 1, 1, ..., 1, 1, 1],
               [1, 1, 1, ..., 1, 1, 1]], int8, (2, 10), main)
    """
    facts = f"{tensor.dtype}, {tensor.shape}, {tensor.space}"
    if tensor.memory != "mem":
        facts += f", {tensor.memory}"
    if tensor.readonly:
        facts += ", read-only"
    if tensor.closed:
        return f"<tm.Tensor (closed), {facts}>"
    values = _values(tensor)
    return f"<tm.Tensor {facts}>" if values is None else f"tm.Tensor({_lines(values, 11)}, {facts})"


def html(tensor: Tensor) -> str:
    """What notebooks show.

    >>> import tensormem as tm
    >>> html(tm.zeros((1, 1)))[:7]
    '<table>'
    """
    from html import escape  # its tables of entities are large, and few are in a notebook

    facts = {
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "strides": tensor.strides,
        "bytes": format_size(tensor.nbytes),
        "space": tensor.space,
        "memory": tensor.memory,
    }
    rows = "".join(f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    values = None if tensor.closed else _values(tensor)
    shown = "" if values is None else f"<pre>{escape(_lines(values, 0))}</pre>"
    return f"<table>{rows}</table>{shown}"


def _values(tensor: Tensor) -> Any:
    """Nested lists of text with dots in the middle, or None where values cannot be shown."""
    if not tensor.storage.host_accessible or not tensor.ready:
        return None
    try:
        if not tensor.storage.bracketed:
            return _edges(tensor)
        with tensor.map("r") as mapped, mapped.as_tensor() as reached:
            return _edges(reached)
    except (NotMapped, NotSupported):
        return None


def _edges(tensor: Tensor) -> Any:
    if tensor.ndim == 0:
        return _word(tensor.tolist())
    length = tensor.shape[0]
    if length <= _MANY:
        return [_edges(tensor[i]) for i in range(length)]
    return [*(_edges(tensor[i]) for i in range(_EDGE)), "...", *(_edges(tensor[i - _EDGE]) for i in range(_EDGE))]


def _word(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float | complex) else str(value)


def _lines(values: Any, indent: int) -> str:
    if isinstance(values, str):
        return values
    parts = [_lines(value, indent + 1) for value in values]
    nested = any(isinstance(value, list) for value in values)
    separator = f",\n{' ' * indent}" if nested and len(parts) > 1 else ", "
    return f"[{separator.join(parts)}]"
