"""Owns: DLPack's structs in ctypes, capsules of them, and a producer whose every field can be spoiled.

Must not know: the rules, nor any library. The structs do not come from the compiled core on purpose: this is the other
side. Only what is called in the middle of exceptions, the deleter and the end of a capsule, is compiled.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensormem._core import capsule_around, counting_deleter

__all__ = ["DLTensor", "ExchangeApi", "MadeProducer", "Managed", "Versioned", "capsule_name", "read_capsule"]

_api = ctypes.pythonapi
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetName.restype = ctypes.c_char_p
_api.PyCapsule_GetName.argtypes = [ctypes.py_object]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


class DLTensor(ctypes.Structure):
    """DLPack's DLTensor, flat.

    >>> ctypes.sizeof(DLTensor)
    48
    """

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """DLPack's DLManagedTensor, from before version 1.

    >>> ctypes.sizeof(Managed)
    64
    """

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    """DLPack's DLManagedTensorVersioned.

    >>> ctypes.sizeof(Versioned)
    80
    """

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class ExchangeApi(ctypes.Structure):
    """DLPack's table of C functions.

    >>> ctypes.sizeof(ExchangeApi)
    56
    """

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("prev_api", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p),
        ("to_object", ctypes.c_void_p),
        ("view_object", ctypes.c_void_p),
        ("work_stream", ctypes.c_void_p),
    )


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def capsule_name(capsule: Any) -> str:
    """What a capsule is called now."""
    return (_api.PyCapsule_GetName(capsule) or b"").decode()


def read_capsule(capsule: Any) -> tuple[Versioned | Managed, Callable[[], None]]:
    """Consume a capsule as the standard says: the struct, and the function that gives it back."""
    name = capsule_name(capsule).encode()
    pointer = _api.PyCapsule_GetPointer(capsule, name)
    _api.PyCapsule_SetName(capsule, _USED[name])
    struct = Versioned.from_address(pointer) if name == b"dltensor_versioned" else Managed.from_address(pointer)

    def give_back() -> None:
        if struct.deleter:
            Deleter(struct.deleter)(pointer)

    return struct, give_back


# A capsule does not copy its name.
_USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


class MadeProducer:
    """A producer of one tensor of float32, right in every way unless a field is spoiled. Counts its deleter's calls.

    Fields of the struct are spoiled by name: `{"ndim": -1}`, `{"data": None}`; pointers as
    `shape_pointer` and `strides_pointer`.

    >>> import tensormem as tm
    >>> made = MadeProducer([2, 2], [1.0, 2.0, 3.0, 4.0])
    >>> tensor = tm.from_dlpack(made)
    >>> tensor.tolist(), made.deleted
    ([[1.0, 2.0], [3.0, 4.0]], 0)
    >>> del tensor
    >>> made.deleted
    1
    """

    def __init__(
        self,
        shape: Sequence[int],
        values: Sequence[float],
        *,
        legacy: bool = False,
        strides: Sequence[int] | None = None,
        deleter: bool = True,
        spoiled: Mapping[str, Any] | None = None,
    ) -> None:
        self.asked: list[dict[str, Any]] = []
        self._legacy = legacy
        self._deleted = ctypes.c_int64()
        self._values = (ctypes.c_float * max(1, len(values)))(*values)
        self._shape = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self._strides = (ctypes.c_int64 * max(1, len(shape)))(*(_row_major(shape) if strides is None else strides))
        self._old, self._new = Managed(), Versioned(major=1, minor=0)
        for struct in (self._old, self._new):
            struct.context = ctypes.addressof(self._deleted)
            struct.deleter = counting_deleter(struct is self._new) if deleter else None
            self._fill(struct.tensor, len(shape))
            for name, value in (spoiled or {}).items():
                field = name.removesuffix("_pointer")
                if hasattr(struct.tensor, field) or hasattr(struct, field):
                    setattr(struct if hasattr(struct, field) else struct.tensor, field, value)

    def _fill(self, tensor: DLTensor, ndim: int) -> None:
        tensor.data = ctypes.addressof(self._values)
        tensor.device_type, tensor.device_id, tensor.ndim = 1, 0, ndim
        tensor.code, tensor.bits, tensor.lanes = 2, 32, 1
        tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        tensor.strides = ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64))

    @property
    def deleted(self) -> int:
        """How often the tensor was given back."""
        return self._deleted.value

    @property
    def is_asked_for_versions(self) -> bool:
        """Whether the consumer ever said that it takes versioned tensors."""
        return any((asked.get("max_version") or (0,))[0] >= 1 for asked in self.asked)

    def capsule(self, *, versioned: bool = True) -> Any:
        """A fresh capsule of the tensor."""
        return capsule_around(ctypes.addressof(self._new if versioned else self._old), versioned, self)

    def __dlpack__(self, **options: Any) -> Any:
        """A capsule, as the standard asks; a producer from before version 1 takes no arguments but a stream."""
        if self._legacy and options.keys() - {"stream"}:
            raise TypeError(f"unexpected arguments: {', '.join(options)}")
        self.asked.append(options)
        return self.capsule(versioned=not self._legacy and self.is_asked_for_versions)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device that the struct says."""
        return self._new.tensor.device_type, self._new.tensor.device_id


def _row_major(shape: Sequence[int]) -> list[int]:
    steps = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        steps[dim] = steps[dim + 1] * max(1, shape[dim + 1])
    return steps
