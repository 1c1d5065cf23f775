"""Owns: single elements as Python values: one value to bytes, and the values of a tensor as nested lists.

Must not know: where the bytes live; it is given memory that the CPU reaches.
"""

from __future__ import annotations

import struct

from tensormem import errors
from tensormem._core import Tensor, empty, reinterpret
from tensormem.dtypes import DType, DTypeCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["encode", "encode_pattern", "nested"]


def encode(value: object, dtype: DType) -> bytes:
    """The bytes of one element. A value that does not fit is refused, never wrapped around.

    >>> import tensormem as tm
    >>> encode(1.0, tm.dtype("bfloat16")).hex(), encode(1 + 2j, tm.dtype("complex64")).hex()
    ('803f', '0000803f00000040')
    """
    if dtype.is_subbyte:
        raise errors.NotSupported(f"single values of {dtype}, which share bytes")
    try:
        return _encode_lane(value, dtype) * dtype.lanes
    except (struct.error, OverflowError, TypeError, ValueError) as refused:
        raise errors.InvalidArgument(f"{value!r:.80} is not a value of {dtype}: {refused}") from None


def encode_pattern(value: object, dtype: DType, *, packed: bool) -> bytes:
    """The bytes that repeat over elements which are all `value`: one element, or for packed ones the first whole bytes.

    >>> import tensormem as tm
    >>> encode_pattern(-2, tm.dtype("int4"), packed=True).hex(), encode_pattern(0, tm.dtype("float32"), packed=False)
    ('ee', b'\\x00\\x00\\x00\\x00')
    """
    if not dtype.is_subbyte:
        return encode(value, dtype)
    if value == 0 and not isinstance(value, complex):
        return b"\x00"
    bits = dtype.bits
    if dtype.code not in (DTypeCode.INT, DTypeCode.UINT, DTypeCode.BOOL) or dtype.lanes != 1 or 8 % bits:
        raise errors.NotSupported(f"values of {dtype} other than 0")
    low, high = (-(1 << bits - 1), 1 << bits - 1) if dtype.code is DTypeCode.INT else (0, 1 << bits)
    if not isinstance(value, int) or not low <= value < high:
        raise errors.InvalidArgument(f"{value!r:.80} is not a value of {dtype}: whole numbers from {low} to {high - 1}")
    element = value & (1 << bits) - 1
    return bytes([sum(element << shift for shift in range(0, 8 if packed else 1, bits))])


def _encode_lane(value: Any, dtype: DType) -> bytes:
    if dtype.code is DTypeCode.COMPLEX:
        number = complex(value)
        return struct.pack({32: "=2e", 64: "=2f", 128: "=2d"}[dtype.bits], number.real, number.imag)
    if dtype.code is DTypeCode.BFLOAT:
        return struct.pack("=H", _round_to_bfloat16(struct.unpack("=I", struct.pack("=f", value))[0]))
    if dtype.code is DTypeCode.OPAQUE_HANDLE or dtype.buffer_format is None:
        if value == 0 and not isinstance(value, complex):
            return bytes(dtype.bits // 8)
        raise errors.NotSupported(f"values of {dtype} other than 0")
    return struct.pack("=" + dtype.buffer_format, value)


def _round_to_bfloat16(bits: int) -> int:
    if bits & 0x7FFFFFFF > 0x7F800000:  # not a number: rounding could make it infinite
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def nested(tensor: Tensor) -> Any:
    """The values of a tensor as nested lists, or one value when it has no dimensions.

    >>> import tensormem as tm
    >>> nested(tm.full((1, 2), 3, "int8"))
    [[3, 3]]
    """
    code = tensor.dtype.code
    if tensor.dtype.lanes == 1 and code is DTypeCode.COMPLEX and tensor.dtype.bits > 32:
        parts = _flat(tensor, "float32" if tensor.dtype.bits == 64 else "float64")
        return _nest(iter([complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]), tensor.shape)
    if tensor.dtype.lanes == 1 and code is DTypeCode.BFLOAT:
        wide = [struct.unpack("=f", struct.pack("=I", half << 16))[0] for half in _flat(tensor, "uint16")]
        return _nest(iter(wide), tensor.shape)
    if tensor.dtype.name == "float16":  # which a memoryview does not read
        halves = _flat(tensor, "uint16")
        return _nest(iter(struct.unpack(f"={len(halves)}e", struct.pack(f"={len(halves)}H", *halves))), tensor.shape)
    if tensor.dtype.buffer_format is None:
        raise errors.NotSupported(f"values of {tensor.dtype} in Python; hand it to a library that knows them")
    return memoryview(tensor).tolist()


def _flat(tensor: Tensor, dtype: str) -> list[Any]:
    """All elements in order, read as another type."""
    if not tensor.size:
        return []
    dense = tensor if tensor.is_contiguous else empty(tensor.shape, tensor.dtype)
    if dense is not tensor:
        dense.copy_(tensor)
    values: list[Any] = memoryview(reinterpret(dense, dtype)).tolist()
    return values


def _nest(values: Any, shape: tuple[int, ...]) -> Any:
    if not shape:
        return next(values)
    return [_nest(values, shape[1:]) for _ in range(shape[0])]
