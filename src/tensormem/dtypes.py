"""Owns: the element types of DLPack 1.3 as values, their names, and what other libraries call them.

Must not know: NumPy, torch or ml_dtypes. Their dtypes are recognised by what they say of themselves, so nothing is
imported for it. A DType says how wide an element is, not how a tensor lays elements out: DLPack packs elements of less
than a byte, NumPy gives each its own byte, and only whoever brings the bytes can tell which.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from operator import index

from tensormem.errors import InvalidDType, InvalidSize
from tensormem.units import MAX_NBYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


class DTypeCode(IntEnum):
    """DLPack's number for a family of element types.

    >>> DTypeCode.BFLOAT.value
    4
    """

    INT = 0
    UINT = 1
    FLOAT = 2
    OPAQUE_HANDLE = 3
    BFLOAT = 4
    COMPLEX = 5
    BOOL = 6
    FLOAT8_E3M4 = 7
    FLOAT8_E4M3 = 8
    FLOAT8_E4M3B11FNUZ = 9
    FLOAT8_E4M3FN = 10
    FLOAT8_E4M3FNUZ = 11
    FLOAT8_E5M2 = 12
    FLOAT8_E5M2FNUZ = 13
    FLOAT8_E8M0FNU = 14
    FLOAT6_E2M3FN = 15
    FLOAT6_E3M2FN = 16
    FLOAT4_E2M1FN = 17


_WHOLE_NUMBER_BITS = (1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64)
# The families whose name needs the number of bits behind it; the others have one width each.
_BITS = {
    DTypeCode.INT: _WHOLE_NUMBER_BITS,
    DTypeCode.UINT: _WHOLE_NUMBER_BITS,
    DTypeCode.FLOAT: (16, 32, 64),
    DTypeCode.OPAQUE_HANDLE: (8, 16, 32, 64),
    DTypeCode.BFLOAT: (16,),
    DTypeCode.COMPLEX: (32, 64, 128),
}
_NAMES: dict[tuple[int, int], str] = {
    (code, bits): f"{code.name.lower()}{bits}" for code, widths in _BITS.items() for bits in widths
}
_NAMES[DTypeCode.BOOL, 8] = "bool"
# float8_e5m2 and its like: the width is the digit behind "float".
_NAMES |= {(code, int(code.name[5])): code.name.lower() for code in DTypeCode if code > DTypeCode.BOOL}
_BY_NAME = {name: key for key, name in _NAMES.items()}

# The types that have a typestr for `__array_interface__` and a format for the buffer protocol.
_FORMATS = {
    "bool": ("b1", "?"),
    "int8": ("i1", "b"),
    "int16": ("i2", "h"),
    "int32": ("i4", "i"),
    "int64": ("i8", "q"),
    "uint8": ("u1", "B"),
    "uint16": ("u2", "H"),
    "uint32": ("u4", "I"),
    "uint64": ("u8", "Q"),
    "float16": ("f2", "e"),
    "float32": ("f4", "f"),
    "float64": ("f8", "d"),
    "complex64": ("c8", "Zf"),
    "complex128": ("c16", "Zd"),
}
_BY_TYPESTR = {typestr: name for name, (typestr, _) in _FORMATS.items()}
_BY_FORMAT = {letter: name for name, (_, letter) in _FORMATS.items()}
# What people write for short; none of them could mean another type.
_SHORT = {
    "bf16": "bfloat16",
    "double": "float64",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "half": "float16",
    "single": "float32",
}
_BY_PYTHON_TYPE = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
_WHY_NOT = {
    "O": "Python objects are not bytes",
    "M": "times need a unit; view them as int64",
    "m": "times need a unit; view them as int64",
    "S": "text has no element type; view it as uint8",
    "U": "text has no element type; view it as uint32",
    "T": "text has no element type",
    "V": "raw bytes have no element type; view them as uint8",
}
_NATIVE, _FOREIGN = ("<", ">") if sys.byteorder == "little" else (">", "<")
_MAX_LANES = 2**16 - 1

_interned: dict[tuple[int, int, int], DType] = {}
_recognised: dict[object, DType] = {}


class DType(str):
    """An element type: DLPack's (code, bits, lanes). There is one object per type, and it is its name as text.

    It equals its name, and a type of NumPy or PyTorch that means the same; its hash is its name's. A short name such as
    "f8" is another text, with another hash, and so is not equal: `dtype("f8")` finds the type.

    >>> DType(2, 32).name, DType(17, 4, 2).name
    ('float32', 'float4_e2m1fn_x2')
    >>> dtype("float64") == "float64", dtype("float64") == float, dtype("float64") == "f8", dtype("f8") == "float64"
    (True, True, False, True)
    """

    __slots__ = ("bits", "code", "lanes", "name")
    code: DTypeCode
    bits: int
    lanes: int
    name: str

    def __new__(cls, code: int, bits: int, lanes: int = 1) -> DType:
        """The one object for these three; `InvalidDType` if DLPack has no such type."""
        try:
            key = index(code), index(bits), index(lanes)
        except TypeError:
            raise InvalidDType((code, bits, lanes), what="code, bits and lanes are whole numbers") from None
        # setdefault is atomic: of two threads that make the same type, both get the first one's object.
        return _interned.get(key) or _interned.setdefault(key, cls._make(*key))

    @classmethod
    def _make(cls, code: int, bits: int, lanes: int) -> DType:
        name = _NAMES.get((code, bits))
        if name is None:
            raise InvalidDType((code, bits, lanes), what=_explain_width(code))
        if not 1 <= lanes <= _MAX_LANES:
            raise InvalidDType((code, bits, lanes), what=f"lanes are 1 to {_MAX_LANES}")
        full_name = name if lanes == 1 else f"{name}_x{lanes}"
        new = str.__new__(cls, full_name)
        for slot, value in (("code", DTypeCode(code)), ("bits", bits), ("lanes", lanes), ("name", full_name)):
            object.__setattr__(new, slot, value)
        return new

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a DType cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a DType cannot be changed: {name}")

    def __reduce__(self) -> tuple[type[DType], tuple[int, int, int]]:
        return DType, (int(self.code), self.bits, self.lanes)

    def __eq__(self, other: object) -> bool:
        if self is other or isinstance(other, DType):
            return self is other
        if isinstance(other, str):  # with a text, equality has to mean equal hashes
            return self.name == other
        try:
            return dtype(other) is self
        except InvalidDType:
            return NotImplemented

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return NotImplemented if equal is NotImplemented else not equal

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return f"tm.dtype({self.name!r})"

    def __str__(self) -> str:
        return self.name

    @property
    def itemsize_bits(self) -> int:
        """Bits of one element, all lanes together."""
        return self.bits * self.lanes

    @property
    def itemsize(self) -> int:
        """Bytes that one element alone takes, rounded up. For many packed ones ask `nbytes_for`."""
        return (self.bits * self.lanes + 7) // 8

    @property
    def is_subbyte(self) -> bool:
        """Whether elements do not end on a byte, so that packed ones share bytes."""
        return self.itemsize_bits % 8 != 0

    @property
    def typestr(self) -> str | None:
        """What `__array_interface__` calls it, e.g. "<f4"; None when it has no word for it, as for bfloat16."""
        typestr = _FORMATS.get(self.name, (None, None))[0]
        return typestr and f"{'|' if self.bits == 8 else _NATIVE}{typestr}"

    @property
    def buffer_format(self) -> str | None:
        """What the buffer protocol calls it, e.g. "f"; None when it has no word for it."""
        return _FORMATS.get(self.name, (None, None))[1]

    def nbytes_for(self, count: int) -> int:
        """Bytes of `count` packed elements.

        >>> dtype("float6_e3m2fn").nbytes_for(4)
        3
        """
        nbytes = (count * self.itemsize_bits + 7) // 8
        if not 0 <= nbytes <= MAX_NBYTES:
            raise InvalidSize(nbytes, what=f"{count} elements of {self.name}")
        return nbytes


def dtype(value: object, /) -> DType:
    """The element type that `value` names: a name, a Python, NumPy, ml_dtypes or torch type, a typestr, or a format.

    In short forms a digit counts bytes as in NumPy ("i8" is int64), a lone letter is a format of the buffer protocol
    ("b" is int8), and only the byte order of this machine is taken. "bf16", "half" and their like are known.

    >>> dtype("bfloat16"), dtype(float), dtype("<f4"), dtype("?")
    (tm.dtype('bfloat16'), tm.dtype('float64'), tm.dtype('float32'), tm.dtype('bool'))
    """
    if isinstance(value, DType):
        return value
    try:
        known = _recognised.get(value)
    except TypeError:
        raise InvalidDType(value, what=f"{type(value).__name__} is no type, name or dtype") from None
    return known or _recognised.setdefault(value, _recognise(value))


def _recognise(value: object) -> DType:
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, type):
        return _from_type(value)
    if all(hasattr(value, name) for name in ("kind", "itemsize", "name", "byteorder")):
        return _from_numpy(value)
    if type(value).__module__ == "torch":
        return _from_text(str(value))
    raise InvalidDType(value, what=f"{type(value).__name__} is no type, name or dtype")


def _from_text(text: str) -> DType:
    name, separator, digits = text.removeprefix("torch.").rpartition("_x")
    if not separator:
        name, digits = digits, "1"
    elif not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 1 < int(digits) <= _MAX_LANES):
        raise InvalidDType(text, what=f"lanes are written _x2 to _x{_MAX_LANES}")
    elif digits[0] == "0" or name not in _BY_NAME:
        raise InvalidDType(text)
    name = _SHORT.get(name, name)
    return DType(*_BY_NAME[name if name in _BY_NAME else _from_format(text)], int(digits))


def _from_format(text: str) -> str:
    """The name behind a typestr ("<f4") or a format of the buffer protocol ("<d", "Zf", "l")."""
    order = text[0] if text[:1] in tuple("<>=|@!") else ""
    letters = text[len(order) :]
    name = _BY_TYPESTR.get(letters) if order not in ("@", "!") else None
    name = name or (_from_struct(order, letters) if order != "|" else None)
    if name is None:
        raise InvalidDType(text)
    if (">" if order == "!" else order) == _FOREIGN and _BY_NAME[name][1] > 8:
        raise InvalidDType(text, what="its bytes are in foreign order; swap them first")
    return name


def _from_struct(order: str, letters: str) -> str | None:
    if letters in ("l", "L", "n", "N"):  # their width depends on the machine and on `order`
        import struct

        try:
            nbytes = struct.calcsize(order + letters)
        except struct.error:
            return None
        return f"{'int' if letters.islower() else 'uint'}{nbytes * 8}"
    return _BY_FORMAT.get(letters)


def _from_type(kind: type) -> DType:
    if kind in _BY_PYTHON_TYPE:
        return _from_text(_BY_PYTHON_TYPE[kind])
    # A type of NumPy's can only be given where NumPy is loaded already.
    numpy: Any = sys.modules.get("numpy")
    if issubclass(kind, getattr(numpy, "generic", ())):
        return _from_numpy(_describe(kind, numpy.dtype))
    described = getattr(kind, "dtype", None)  # JAX's scalar types say it this way
    if hasattr(described, "byteorder"):
        return _from_numpy(described)
    raise InvalidDType(kind)


def _describe(kind: type, describe: Callable[[type], Any]) -> Any:
    try:
        described = describe(kind)
    except (TypeError, Warning):
        described = None
    if described is None or described.type is not kind:  # an abstract type; older NumPy takes floating for float64
        raise InvalidDType(kind, what="it does not name one element type")
    return described


def _from_numpy(described: Any) -> DType:
    """From an object with the attributes of a NumPy dtype; ml_dtypes has its own names behind the same attributes."""
    if getattr(described, "names", None) is not None or getattr(described, "subdtype", None) is not None:
        raise InvalidDType(described, what="it is made of several parts; give the type of one")
    if described.byteorder == _FOREIGN:
        raise InvalidDType(described, what="its bytes are in foreign order; use .newbyteorder('=') after a byteswap")
    key = _BY_NAME.get(described.name)
    if key is None or (found := DType(*key)).itemsize != described.itemsize:
        raise InvalidDType(described, what=_WHY_NOT.get(described.kind, "DLPack has no such type"))
    return found


def _explain_width(code: int) -> str:
    widths = [str(bits) for known, bits in _NAMES if known == code]
    return f"{DTypeCode(code).name} has {' or '.join(widths)} bits" if widths else f"DLPack 1.3 has no code {code}"


bfloat16 = dtype("bfloat16")
complex64 = dtype("complex64")
complex128 = dtype("complex128")
float16 = dtype("float16")
float32 = dtype("float32")
float64 = dtype("float64")
int8 = dtype("int8")
int16 = dtype("int16")
int32 = dtype("int32")
int64 = dtype("int64")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
