"""Owns: files in the safetensors format as tensors: mapped into memory, so that nothing is read before it is touched.

In main memory the tensors are views of the file itself; in another space, one copy, straight from the file. The format
is eight bytes of length, a header of JSON, and the bytes. Every number of the header is checked before it is believed.
Must not know: the library of that name.

>>> import tempfile
>>> import tensormem as tm
>>> with tempfile.NamedTemporaryFile() as file:
...     save({"bias": tm.full(2, 1.5)}, file.name)
...     load(file.name)["bias"].tolist()
[1.5, 1.5]
"""

import json
import os
from collections.abc import Mapping
from math import prod
from typing import Any

from tensormem import errors
from tensormem._core import reinterpret
from tensormem.drivers import resolve
from tensormem.dtypes import DType, dtype
from tensormem.memories import Storage
from tensormem.memories.mapped_file import map_file
from tensormem.public_functions import explain_misspellings
from tensormem.spaces import main
from tensormem.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["load", "save"]

_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}
_LONGEST_HEADER = 100_000_000
_Path = str | os.PathLike[str]


def load(path: _Path, space: "WhereLike" = main, *, mode: str = "r") -> dict[str, Tensor]:
    """The tensors of a file, by name. `mode` as in `tm.from_file`: "r" read-only, "c" copy-on-write, "r+" shared."""
    storage = map_file(path, mode)
    header, start = _header(path, storage)
    wanted = resolve(space)
    return {
        name: _tensor(path, name, entry, storage, start).to(wanted)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def save(tensors: Mapping[str, Tensor], path: _Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file that every reader of the format understands. Strided ones are written without gaps."""
    names = {known: short for short, known in _NAMES.items()}
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype.name not in names:
            raise errors.InvalidDType(tensor.dtype, what="the safetensors format has no word for it")
        extent = [offset, offset + tensor.nbytes]
        header[name] = {"dtype": names[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": extent}
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            if tensor.size:
                file.write(memoryview(reinterpret(tensor.to(main).contiguous(), "uint8")))


def _header(path: _Path, storage: Storage) -> tuple[dict[str, Any], int]:
    data = memoryview(Tensor(storage, "uint8", (storage.nbytes,)))
    length = int.from_bytes(data[:8], "little")
    if storage.nbytes < 8 or length > min(_LONGEST_HEADER, storage.nbytes - 8):
        raise _broken(path, f"its header claims {length:,} bytes of a file of {storage.nbytes:,}")
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
    except (ValueError, RecursionError) as refused:
        raise _broken(path, f"its header is no JSON: {refused}") from None
    if not isinstance(header, dict):
        raise _broken(path, "its header is no JSON object")
    return header, 8 + length


def _tensor(path: _Path, name: str, entry: Any, storage: Storage, start: int) -> Tensor:
    try:
        element, shape = dtype(_NAMES[entry["dtype"]]), [_whole(length) for length in entry["shape"]]
        first, end = map(_whole, entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as refused:
        raise _broken(path, f"the entry of {name!r:.80} cannot be understood: {refused!r:.80}") from None
    if end - first != prod(shape) * element.itemsize or start + end > storage.nbytes:
        raise _broken(path, f"{name!r:.80} is said to be at {first} to {end}, which does not hold {shape} of {element}")
    return _view(storage, element, shape, start + first)


def _view(storage: Storage, element: DType, shape: list[int], offset: int) -> Tensor:
    tensor = Tensor(storage, element, shape, offset=offset)
    # Old writers did not pad their headers. An address that no library takes is worth one copy.
    return tensor if tensor.ptr % min(element.itemsize, 8) == 0 or not tensor.size else tensor.clone()


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is no length")
    return value


def _broken(path: _Path, why: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(f"{os.fspath(path)} is no safetensors file: {why}")


explain_misspellings(globals())
