"""Owns: tensors made from values: numbers, nested lists, ranges, and the shape of another tensor.

Values are written once, in the memory of the CPU, and brought to their space; nothing is computed with them, and no
type is converted into another. Must not know: how other libraries are imported.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import ceil, isfinite
from typing import Any, SupportsIndex

from tensormem import errors
from tensormem._core import DeviceMemoryResource, StreamLike, Tensor, empty, full, zeros
from tensormem.dtypes import DType, DTypeCode
from tensormem.dtypes import dtype as find_dtype
from tensormem.spaces import LogicalMemorySpace
from tensormem.tensor.making import Shape, from_buffer, wrap
from tensormem.tensor.values import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = [
    "arange",
    "array",
    "asarray",
    "empty_like",
    "full_like",
    "ones",
    "ones_like",
    "tensor_from_values",
    "zeros_like",
]

_MAX_DEPTH = 64
_AT_ONCE = 1 << 16  # numbers of a range, which are Python's before they are bytes


def ones(
    shape: Shape,
    dtype: object = "float32",
    *,
    space: WhereLike | None = None,
    memory: str | None = None,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    alignment: SupportsIndex | None = None,
    tag: str | None = None,
    use: str | None = None,
) -> Tensor:
    """A tensor of ones, made as `empty` makes one.

    >>> ones((2, 2), "int8").tolist()
    [[1, 1], [1, 1]]
    """
    return full(
        shape,
        1,
        dtype,
        space=space,
        memory=memory,
        mr=mr,
        stream=stream,
        alignment=alignment,
        tag=tag,
        use=use,
    )


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: object = None,
    *,
    space: WhereLike | None = None,
    tag: str | None = None,
) -> Tensor:
    """The numbers from `start` (0 if one number is given) to before `stop`, `step` apart, as in NumPy.

    >>> arange(3).tolist(), arange(1, 2, 0.25).tolist(), arange(3, 0, -1, "uint8").tolist()
    ([0, 1, 2], [1.0, 1.25, 1.5, 1.75], [3, 2, 1])
    """
    first, last = (0, start) if stop is None else (start, stop)
    _check_numbers(first, last, step)
    if step == 0:
        raise errors.InvalidArgument("the step of a range is not 0")
    whole = all(isinstance(number, int) for number in (first, last, step))
    # In whole numbers, where all are: a quotient of floats would lie past 2**53.
    count = max(0, int(-((last - first) // -step)) if whole else ceil((last - first) / step))
    element = find_dtype(int if whole else float) if dtype is None else find_dtype(dtype)
    made = empty(count, element, tag=tag)
    for begin in range(0, count, _AT_ONCE):
        end = min(begin + _AT_ONCE, count)
        part = _pack([first + index * step for index in range(begin, end)], element)
        made[begin:end].copy_(from_buffer(part, element, end - begin))
    return made if space is None else made.to(space)


def _check_numbers(*numbers: Any) -> None:
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or not isfinite(number):
            raise errors.InvalidArgument(f"a range is made of finite numbers, not of {number!r:.40}")


def asarray(
    obj: Any, dtype: object = None, *, space: WhereLike | None = None, copy: bool | None = None, tag: str | None = None
) -> Tensor:
    """`obj` as a tensor: without a copy if it speaks DLPack, an array interface or the buffer protocol, else of its
    numbers. `copy=True` always copies, and `copy=False` refuses where it would have to.

    Elements keep their type: with another `dtype`, what has one already is refused, because nothing is converted here.

    >>> import numpy as np
    >>> asarray([[1, 2], [3, 4]]).dtype, asarray(2.5).item(), asarray(np.arange(3)).shape
    (tm.dtype('int64'), 2.5, (3,))
    """
    if isinstance(obj, bool | int | float | complex | list | tuple | range):
        if copy is False:
            raise errors.InvalidArgument(f"a {type(obj).__name__} has no memory to share: it can only be copied")
        return tensor_from_values(obj, dtype, space=space, tag=tag)
    tensor, fresh = _shared(obj, copy)
    if dtype is not None and find_dtype(dtype) is not tensor.dtype:
        raise errors.InvalidDType(dtype, what=f"the elements are {tensor.dtype}, and nothing is converted here")
    if space is not None and LogicalMemorySpace.parse(space) is not tensor.space:
        if copy is False:
            raise errors.InvalidArgument(f"memory of {tensor.space} can only be copied to {space}")
        return tensor.to(space)
    return tensor.clone() if copy and not fresh else tensor


def _shared(obj: Any, copy: bool | None) -> tuple[Tensor, bool]:
    """A tensor over the memory of `obj`, and whether it is a copy: PyTorch leaves signs and conjugations to whoever
    reads the values, and resolving them makes one."""
    if callable(getattr(type(obj), "resolve_conj", None)) and (obj.is_conj() or obj.is_neg()):
        if copy is False:
            raise errors.InvalidArgument("values that are negated or conjugated when they are read can only be copied")
        return wrap(obj.resolve_conj().resolve_neg()), True
    return wrap(obj), False


def tensor_from_values(
    data: Any, dtype: object = None, *, space: WhereLike | None = None, tag: str | None = None
) -> Tensor:
    """A new tensor of the values in `data`: a number, nested lists of numbers, or the elements of another array.

    Without a `dtype`, whole numbers are int64, others float64 or complex128, and truth values bool.

    >>> tensor_from_values([[1, 2], [3, 4]]).tolist(), tensor_from_values([1, 2.5]).dtype
    ([[1, 2], [3, 4]], tm.dtype('float64'))
    """
    if isinstance(data, range):
        data = list(data)
    if not isinstance(data, bool | int | float | complex | list | tuple):
        return asarray(data, dtype, space=space, copy=True, tag=tag)
    shape = _shape_of(data)
    values: list[Any] = []
    _collect(data, shape, 0, values)
    element = _common_type(values) if dtype is None else find_dtype(dtype)
    packed = _pack(values, element)
    made = empty(shape, element, tag=tag)
    if packed:
        made.copy_(from_buffer(packed, element, shape))
    return made if space is None else made.to(space)


array = tensor_from_values
"""NumPy's name for it; PyTorch's is `tm.tensor`."""


def _shape_of(data: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(data, list | tuple):
        if len(shape) == _MAX_DEPTH:
            raise errors.InvalidArgument(f"a tensor has at most {_MAX_DEPTH} dimensions")
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return tuple(shape)


def _collect(data: Any, shape: tuple[int, ...], depth: int, values: list[Any]) -> None:
    if depth == len(shape):
        if not isinstance(data, bool | int | float | complex):
            raise errors.InvalidArgument(f"a tensor is made of numbers in lists of equal lengths, not of {data!r:.40}")
        values.append(data)
        return
    if not isinstance(data, list | tuple) or len(data) != shape[depth]:
        raise errors.InvalidArgument(f"the lists at depth {depth} differ in length: {shape[depth]} and {data!r:.40}")
    for each in data:
        _collect(each, shape, depth + 1, values)


def _common_type(values: Sequence[Any]) -> DType:
    """As NumPy chooses: the widest kind of number among the values; without any, float64."""
    kinds = {type(value) for value in values}
    for kind in (complex, float, int, bool):
        if any(issubclass(each, kind) and not (kind is int and each is bool) for each in kinds):
            return find_dtype(kind)
    return find_dtype(float)


def _pack(values: list[Any], element: DType) -> bytes:
    letter = element.buffer_format
    if letter is not None and element.lanes == 1 and element.code is not DTypeCode.COMPLEX:
        try:
            return struct.pack(f"={len(values)}{letter}", *values)
        except (struct.error, OverflowError, TypeError):
            pass  # one by one, to say which
    return b"".join([encode(value, element) for value in values])


def empty_like(
    other: Any,
    dtype: object = None,
    *,
    space: WhereLike | None = None,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    tag: str | None = None,
) -> Tensor:
    """A tensor of the shape and element type of `other`, in its space unless told, with whatever was in the memory.

    >>> import tensormem as tm
    >>> empty_like(tm.zeros((2, 3), "int8")).shape
    (2, 3)
    """
    return empty(*_like(other, dtype), space=_space_of(other, space, mr), mr=mr, stream=stream, tag=tag)


def zeros_like(
    other: Any,
    dtype: object = None,
    *,
    space: WhereLike | None = None,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    tag: str | None = None,
) -> Tensor:
    """A tensor of zeros, of the shape and element type of `other`, in its space unless told.

    >>> import numpy as np
    >>> zeros_like(np.arange(3)).tolist()
    [0, 0, 0]
    """
    return zeros(*_like(other, dtype), space=_space_of(other, space, mr), mr=mr, stream=stream, tag=tag)


def ones_like(
    other: Any,
    dtype: object = None,
    *,
    space: WhereLike | None = None,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    tag: str | None = None,
) -> Tensor:
    """A tensor of ones, of the shape and element type of `other`, in its space unless told.

    >>> import numpy as np
    >>> ones_like(np.arange(3)).tolist()
    [1, 1, 1]
    """
    return full_like(other, 1, dtype, space=space, mr=mr, stream=stream, tag=tag)


def full_like(
    other: Any,
    value: object,
    dtype: object = None,
    *,
    space: WhereLike | None = None,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    tag: str | None = None,
) -> Tensor:
    """A tensor of which every element is `value`, of the shape and element type of `other`, in its space unless told.

    >>> import numpy as np
    >>> full_like(np.arange(3), 7).tolist()
    [7, 7, 7]
    """
    shape, element = _like(other, dtype)
    return full(shape, value, element, space=_space_of(other, space, mr), mr=mr, stream=stream, tag=tag)


def _like(other: Any, dtype: object) -> tuple[tuple[int, ...], DType]:
    if not (hasattr(other, "shape") and hasattr(other, "dtype")):
        raise errors.InvalidArgument(f"{type(other).__name__} has no shape and dtype to be like")
    return tuple(other.shape), find_dtype(other.dtype if dtype is None else dtype)


def _space_of(other: Any, space: WhereLike | None, mr: DeviceMemoryResource | None) -> WhereLike | None:
    if space is not None or mr is not None:
        return space
    home = other.space if isinstance(other, Tensor) else getattr(other, "device", None)
    meant = None if home is None else LogicalMemorySpace.parse(home)
    return None if meant == "main" else home
