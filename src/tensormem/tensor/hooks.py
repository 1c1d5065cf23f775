"""Owns: what the compiled tensor asks of the rooms above it; installed by this package when it is imported.

Every function here is one that a method of `Tensor` calls. Must not know: anything of its own.
"""

from __future__ import annotations

from typing import Any

from tensormem import errors
from tensormem._core import (
    DeviceMemoryResource,
    Loan,
    Storage,
    StreamLike,
    Tensor,
    empty,
    kind_of,
    shares_streams,
    storage_from,
    stream_on,
    written_until,
)
from tensormem.copy import clone, copy_into, to
from tensormem.copy import fill as fill_with
from tensormem.drivers import resolve
from tensormem.memories.choice import allocate_for
from tensormem.memories.kinds import TensorMemory
from tensormem.memories.mem import place_of, vendor_of
from tensormem.memories.registry import allocate_kind
from tensormem.mr import get_current_device_resource
from tensormem.spaces import main
from tensormem.tensor.descriptors import clone_fd
from tensormem.tensor.pickling import reduce
from tensormem.tensor.places import describe_place, foreign_place
from tensormem.tensor.readers import check_reader
from tensormem.tensor.text import html, text
from tensormem.tensor.values import encode_pattern, nested

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = [
    "allocate",
    "check_reader",
    "clone",
    "clone_fd",
    "copy_into",
    "current_resource",
    "device_numbers",
    "empty_on_device",
    "fill",
    "foreign_place",
    "html",
    "numpy",
    "order_after",
    "place_of",
    "reduce",
    "text",
    "to",
    "to_device",
    "tolist",
]


def allocate(
    nbytes: int,
    space: WhereLike | None,
    memory: TensorMemory | str | None,
    mr: DeviceMemoryResource | None,
    stream: StreamLike | None,
    alignment: int | None,
    tag: str | None,
    use: str | None,
) -> Storage:
    """A storage for `empty`, where more was said than a size."""
    if memory is not None and use is not None:
        raise errors.InvalidArgument("say either the kind of memory or what it is for")
    if mr is not None and memory not in (None, TensorMemory.MEM, kind_of(mr)):
        raise errors.InvalidArgument(f"{mr!r} makes memory of kind {kind_of(mr) or 'mem'}, not {memory}")
    wanted = None if space is None else resolve(space)
    if mr is not None:
        there = place_of(mr)[0]
        if wanted is not None and (wanted.space is not there or wanted.vendor not in (None, vendor_of(mr.driver))):
            raise errors.CrossSpaceError(wanted, there, what=f"{mr!r} is memory of {there}")
        wanted = resolve(there)
    if nbytes == 0:
        options = describe_place(main if wanted is None else wanted)
        return Storage(0, 0, owner=None, host_accessible=options.pop("host"), **options)
    if mr is not None and (memory is None or memory == TensorMemory.MEM):
        return storage_from(mr, nbytes, stream, alignment, tag)
    options = {"mr": mr, "stream": stream, "alignment": alignment, "tag": tag}
    if memory is None:
        return allocate_for(nbytes, use, wanted or main, options)
    return allocate_kind(nbytes, memory, wanted or main, options)


def current_resource() -> DeviceMemoryResource:
    """The current resource of main memory."""
    return get_current_device_resource()


def fill(tensor: Tensor, value: object, stream: StreamLike | None = None) -> None:
    """Set every element of a tensor, in the order of `stream`."""
    fill_with(tensor, encode_pattern(value, tensor.dtype, packed=tensor.nbytes < tensor.size), stream)


def _check_mappable(tensor: Tensor) -> None:
    if tensor.storage.mappable:
        return
    if tensor.space is main:
        raise errors.Untouchable("the CPU", str(tensor.space))
    raise errors.CrossSpaceError(tensor.space, main)


def numpy(tensor: Tensor) -> Any:
    """A NumPy array over the same bytes; what NumPy alone has no type for, in the types of ml_dtypes."""
    import numpy

    _check_mappable(tensor)
    if tensor.dtype.buffer_format is not None:
        return numpy.asarray(tensor)
    try:
        import ml_dtypes

        element = numpy.dtype(getattr(ml_dtypes, tensor.dtype.name))
    except (ImportError, AttributeError):
        raise errors.NotSupported(
            f"NumPy has no {tensor.dtype}, and ml_dtypes, which might, is not installed"
        ) from None
    plain = f"uint{8 * tensor.itemsize}"
    same = Tensor(tensor.storage, plain, tensor.shape, strides=tensor.strides, offset=tensor.offset)
    return numpy.asarray(same.as_readonly() if tensor.readonly else same).view(element)


def tolist(tensor: Tensor) -> Any:
    """The values as nested lists."""
    _check_mappable(tensor)
    tensor._check_mapped()
    if not tensor.storage.bracketed:
        return nested(tensor)
    with tensor.map("r") as mapped, mapped.as_tensor() as reached:
        return nested(reached)


def device_numbers(device: object) -> tuple[int, int]:
    """DLPack's (device_type, device_id) of a place in any spelling, or the two numbers themselves."""
    if isinstance(device, tuple):
        device_type, device_id = device
        return int(device_type), int(device_id)
    numbers: tuple[int, int] = describe_place(device)["device"]  # type: ignore[arg-type]
    return numbers


def to_device(tensor: Tensor, wanted: tuple[int, int], copy: bool | None) -> Tensor:
    """The tensor on another DLPack device, for its producer side: a copy, or `BufferError` where none is allowed."""
    where = resolve(wanted, dlpack=True)
    if wanted == (1, 0) and tensor.storage.host_accessible and not copy:
        return _as_cpu(tensor)
    if copy is False:
        raise BufferError(f"memory of {tensor.space} cannot be had on DLPack device {wanted} without a copy")
    try:
        moved = tensor.to(where, copy=True)
    except errors.MemoryUnavailable as missing:
        raise BufferError(str(missing)) from None
    if moved.__dlpack_device__() != wanted:
        raise BufferError(f"memory of {where} is DLPack device {moved.__dlpack_device__()} here, not {wanted}")
    return moved


def _as_cpu(tensor: Tensor) -> Tensor:
    """The same bytes, called plain memory of the CPU, which they are as well."""
    tensor.wait()
    storage = tensor.storage
    options = {**describe_place(main), "host_accessible": True}
    del options["host"]
    again = Storage(
        storage.ptr, storage.nbytes, owner=Loan(storage), readonly=tensor.readonly, id=storage.id, **options
    )
    return Tensor(again, tensor.dtype, tensor.shape, strides=tensor.strides, offset=tensor.offset)


def order_after(tensor: Tensor, stream: object) -> None:
    """Let the consumer's stream come after what writes the tensor, as DLPack numbers streams."""
    storage = tensor.storage
    if stream == -1:
        return
    if stream is not None and not isinstance(stream, int):
        raise TypeError(f"a stream is a number or None, not {type(stream).__name__}")
    rocm = storage.device[0] in (10, 11)
    if stream is not None and (stream < -1 or (stream in (1, 2) if rocm else stream == 0)):
        raise errors.StreamMisuse(0, what=f"DLPack has no stream {stream} for device type {storage.device[0]}")
    if not storage.ready and not _make_wait(storage, 0 if stream is None else stream):
        storage.wait()


class _Handle:
    """A vendor's handle of a stream, in the words of a protocol that is taken wherever a stream is."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _make_wait(storage: Storage, handle: int) -> bool:
    """Let a stream of the storage's own driver wait for what writes it; False where only the CPU can."""
    end = written_until(storage)
    if end is None or storage.driver is None or storage.driver.name == "host":
        return False
    if not shares_streams(end.driver, storage.driver):
        return False
    stream_on(storage.driver, _Handle(handle)).wait(end)
    return True


def empty_on_device(shape: tuple[int, ...], dtype: object, device: tuple[int, int]) -> Tensor:
    """A new tensor on a DLPack device, for the allocator of the C exchange API."""
    made = empty(shape, dtype, space=resolve(device, dlpack=True))
    if made.__dlpack_device__() != device:
        raise BufferError(f"memory of {made.space} is DLPack device {made.__dlpack_device__()} here, not {device}")
    return made
