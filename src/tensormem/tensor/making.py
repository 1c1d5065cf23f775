"""Owns: making tensors over memory that somebody else owns, without a copy.

Must not know: how other libraries are imported; they are recognised by the protocols they speak.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, SupportsIndex

from tensormem import errors
from tensormem._core import Storage, Tensor, from_dlpack, take_buffer, tensor_over
from tensormem.dtypes import DType
from tensormem.dtypes import dtype as find_dtype
from tensormem.memories.external import import_external
from tensormem.memories.mapped_file import map_file
from tensormem.spaces import LogicalMemorySpace, main
from tensormem.tensor.places import describe_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["from_buffer", "from_external_fd", "from_file", "from_numpy", "from_pointer", "storage_over", "wrap"]

Shape = SupportsIndex | tuple[SupportsIndex, ...] | list[SupportsIndex]


def from_buffer(
    source: Any, dtype: object = None, shape: Shape | None = None, *, offset: int = 0, readonly: bool | None = None
) -> Tensor:
    """A tensor over the memory of an object with the buffer protocol, which stays locked as long as the tensor lives.

    Without `dtype`, the buffer says its own type, shape and strides. With it, the bytes from `offset` on are read as
    elements of that type: all of them, or as many as `shape` says. Read-only memory gives a read-only tensor.

    >>> from_buffer(b"\\x01\\x02\\x03\\x04", "uint16").tolist(), from_buffer(bytearray(4)).readonly
    ([513, 1027], False)
    """
    if dtype is not None:
        return _over_storage(storage_over(source, readonly), find_dtype(dtype), shape, offset)
    owner, address, nbytes, locked, text, itemsize, lengths, steps = take_buffer(source)
    options = describe_place(main)
    if locked and readonly is False:
        raise BufferError("this buffer may only be read")
    if shape is not None or offset:
        raise errors.InvalidArgument("with a shape or an offset, say the dtype as well")
    # Strides of nothing may say anything.
    given = steps if nbytes else None
    return tensor_over(
        address, _buffer_type(text, itemsize), lengths, given, owner=owner, readonly=bool(readonly or locked), **options
    )


def storage_over(source: Any, readonly: bool | None = None) -> Storage:
    """The storage that the bytes of an object with the buffer protocol are; it locks them as long as it lives.

    >>> storage_over(bytearray(8)).nbytes
    8
    """
    owner, address, nbytes, locked, _, itemsize, lengths, steps = take_buffer(source)
    if locked and readonly is False:
        raise BufferError("this buffer may only be read")
    if steps and not _is_dense(lengths, steps, itemsize):
        raise BufferError("only a buffer without gaps can be read as elements of another type")
    return Storage(address, nbytes, owner=owner, readonly=bool(readonly or locked), **_main_options())


def from_file(
    path: str | os.PathLike[str],
    dtype: object = "uint8",
    shape: Shape | None = None,
    mode: str = "r",
    *,
    offset: int = 0,
) -> Tensor:
    """A tensor over a file in memory, without reading it: `mode` "r" read-only, "c" copy-on-write, "r+" shared.

    From `offset` bytes on; without a shape, as many elements as the file has.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes(range(8)))
    ...     file.flush()
    ...     from_file(file.name, "uint16", mode="c").tolist()
    [256, 770, 1284, 1798]
    """
    return _over_storage(map_file(path, mode), find_dtype(dtype), shape, offset)


def from_external_fd(
    fd: int,
    dtype: object = "uint8",
    shape: Shape | None = None,
    *,
    space: WhereLike = "gpu:0",
    nbytes: SupportsIndex | str | None = None,
    offset: int = 0,
    tag: str | None = None,
) -> Tensor:
    """A tensor in a GPU's space over the memory behind a descriptor, such as a DMA-BUF, without a copy.

    From `offset` bytes on; without `nbytes`, all the memory there is. The descriptor stays the caller's, who keeps the
    CPU's accesses and the GPU's apart.

    >>> import os
    >>> import tensormem as tm
    >>> from tensormem.testing import simulated_gpu
    >>> fd = os.memfd_create("frame")
    >>> _ = os.pwrite(fd, bytes(range(8)) + bytes(4088), 0)
    >>> with simulated_gpu(memory="64MiB"):
    ...     with tm.from_external_fd(fd, "uint16", 4) as frame:
    ...         print(frame.space, frame.to("main").tolist())
    gpu:0 [256, 770, 1284, 1798]
    >>> os.close(fd)
    """
    return _over_storage(import_external(fd, space, nbytes=nbytes, tag=tag), find_dtype(dtype), shape, offset)


def from_pointer(
    ptr: SupportsIndex,
    nbytes: SupportsIndex,
    dtype: object = "uint8",
    shape: Shape | None = None,
    *,
    owner: object,
    space: WhereLike = main,
    readonly: bool = False,
) -> Tensor:
    """A tensor over `nbytes` at an address. `owner` is whatever keeps that memory: it is let go exactly once.

    >>> import ctypes
    >>> memory = (ctypes.c_float * 4)(1, 2, 3, 4)
    >>> from_pointer(ctypes.addressof(memory), 16, "float32", owner=memory).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    address = ptr.__index__()
    if address == 0:
        raise errors.InvalidArgument("the address is null")
    options = _storage_options(describe_place(space))
    storage = Storage(address, nbytes, owner=owner, readonly=readonly, **options)
    return _over_storage(storage, find_dtype(dtype), shape, 0)


def from_numpy(array: Any) -> Tensor:
    """A tensor over the memory of a NumPy array, any strides; its views are views of ours.

    >>> import numpy as np
    >>> array = np.arange(6).reshape(2, 3)
    >>> tensor = from_numpy(array[:, ::-1])
    >>> array[0, 2] = 9
    >>> tensor.tolist()
    [[9, 1, 0], [5, 4, 3]]
    """
    if not hasattr(array, "__array_interface__"):
        raise errors.InvalidArgument(f"{type(array).__name__} is no NumPy array: it has no __array_interface__")
    return _over_interface(array, array.__array_interface__, main, find_dtype(array.dtype))


def wrap(source: Any) -> Tensor:
    """A tensor over the memory of anything that speaks a protocol: DLPack, an array interface, or the buffer protocol.

    >>> wrap(bytearray(b"abc")).shape
    (3,)
    """
    if isinstance(source, Tensor):
        return source
    if hasattr(type(source), "__dlpack__"):
        try:
            return from_dlpack(source)
        except BufferError:
            if not hasattr(source, "__array_interface__"):
                raise
            return from_numpy(source)
    if hasattr(source, "__cuda_array_interface__"):
        return _over_interface(source, source.__cuda_array_interface__, None, None)
    if hasattr(source, "__array_interface__"):
        interface = source.__array_interface__
        return _over_interface(source, interface, main, find_dtype(interface["typestr"]))
    try:
        return from_buffer(source)
    except TypeError:
        raise errors.InvalidArgument(
            f"{type(source).__name__} speaks neither DLPack nor an array interface nor the buffer protocol"
        ) from None


def _over_interface(
    source: Any, interface: dict[str, Any], space: LogicalMemorySpace | None, element: DType | None
) -> Tensor:
    from tensormem.tensor.places import gpu_of_pointer

    data = interface.get("data")
    if not isinstance(data, tuple):
        raise BufferError("only array interfaces that give an address are taken")
    if interface.get("mask") is not None:
        raise BufferError("a masked array is more than one tensor")
    address, readonly = data
    options = describe_place(space) if space is not None else gpu_of_pointer(source)
    kind = find_dtype(interface["typestr"]) if element is None else element
    return tensor_over(
        address or 0,
        kind,
        interface["shape"],
        interface.get("strides"),
        owner=source,
        readonly=bool(readonly),
        **options,
    )


def _over_storage(storage: Storage, element: DType, shape: Shape | None, offset: int) -> Tensor:
    if shape is None:
        if element.is_subbyte:
            raise errors.InvalidArgument(f"elements of {element} share bytes: say the shape")
        left = storage.nbytes - offset
        if left < 0 or left % element.itemsize:
            raise errors.InvalidSize(left, what=f"not a whole number of {element} elements; give a shape")
        shape = left // element.itemsize
    return Tensor(storage, element, shape, offset=offset)


def _buffer_type(text: str, itemsize: int) -> DType:
    try:
        element = find_dtype(text)
    except errors.InvalidDType as refused:
        raise BufferError(f"a buffer of {text!r} has no element type ({refused.what}); say the dtype") from None
    if element.itemsize != itemsize:
        raise BufferError(
            f"a buffer of {text!r} has elements of {itemsize} bytes, and {element} has {element.itemsize}"
        )
    return element


def _is_dense(lengths: tuple[int, ...], steps: tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for length, step in zip(reversed(lengths), reversed(steps), strict=True):
        if length == 0:
            return True
        if length != 1 and step != expected:
            return False
        expected *= length
    return True


@cache
def _main_options() -> dict[str, Any]:
    return _storage_options(describe_place(main))


def _storage_options(options: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in options.items() if name != "host"}, "host_accessible": options["host"]}
