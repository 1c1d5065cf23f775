"""Owns: blocks as buffers of Apache Arrow, and tensors as its arrays and back. pyarrow is loaded when it is first used.

>>> import pyarrow as pa
>>> import tensormem as tm
>>> mr = tm.mr.HostMemoryResource()
>>> data = tm.interop.arrow.allocate_buffer(mr, 4)
>>> memoryview(data).cast("B")[:] = bytes([2, 3, 5, 7])
>>> column = pa.Array.from_buffers(pa.uint8(), 4, [None, data])
>>> column.to_pylist(), mr.bytes_outstanding
([2, 3, 5, 7], 4)
>>> del column, data
>>> mr.bytes_outstanding
0
"""

from typing import TYPE_CHECKING, Any

from tensormem import errors
from tensormem.interop.library import load
from tensormem.mr import DeviceBlock, DeviceMemoryResource
from tensormem.public_functions import explain_misspellings
from tensormem.streams import StreamLike
from tensormem.tensor import Tensor, from_dlpack

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["allocate_buffer", "buffer", "from_arrow", "to_arrow"]


def buffer(block: DeviceBlock) -> "pa.Buffer":
    """A read-only Arrow buffer over the memory of `block`, which lives as long as the buffer or what is built on it.

    Such a block goes back when it and the buffer are dropped; until then, `deallocate` raises `StillExported`.
    """
    return load("pyarrow", "pyarrow").foreign_buffer(block.ptr, block.nbytes, base=memoryview(block))


def allocate_buffer(
    mr: DeviceMemoryResource, nbytes: int | str, stream: StreamLike | None = None, *, tag: str = "arrow"
) -> "pa.Buffer":
    """A writable Arrow buffer of new memory from `mr`; it goes back when the last user of the buffer is gone."""
    pyarrow = load("pyarrow", "pyarrow")
    if not isinstance(mr, DeviceMemoryResource):
        raise errors.InvalidArgument(f"Arrow takes a memory resource, not {type(mr).__name__}")
    if not mr.is_host_accessible:
        raise errors.InvalidArgument(f"Arrow works on the CPU, which cannot touch the memory of {mr!r}")
    return pyarrow.py_buffer(mr.allocate(nbytes, stream, alignment=64, tag=tag))


def from_arrow(column: Any) -> Tensor:
    """A read-only tensor of one dimension over the memory of an Arrow array of numbers without nulls.

    >>> import pyarrow as pa
    >>> from_arrow(pa.array([1, 2, 3])[1:]).tolist()
    [2, 3]
    """
    if hasattr(column, "chunks"):
        if column.num_chunks != 1:
            raise errors.InvalidArgument(f"a column of {column.num_chunks} chunks is not one piece; combine them first")
        column = column.chunk(0)
    if column.null_count:
        raise errors.InvalidArgument(f"a tensor has no nulls, and this array has {column.null_count}; fill them first")
    try:
        return from_dlpack(column).as_readonly()
    except TypeError as refused:
        raise errors.InvalidDType(str(column.type), what=str(refused)) from None


def to_arrow(tensor: Tensor) -> "pa.Array":
    """An Arrow array over the memory of a tensor of one dimension without gaps, which lives as long as the array.

    >>> import tensormem as tm
    >>> to_arrow(tm.full(2, 7, "int16")).to_pylist()
    [7, 7]
    """
    pyarrow = load("pyarrow", "pyarrow")
    if tensor.ndim != 1 or not tensor.is_contiguous:
        raise errors.InvalidArgument(f"an Arrow array has one dimension without gaps, not {tensor.shape}; copy it")
    if tensor.dtype.buffer_format is None or tensor.dtype.name in ("bool", "complex64", "complex128"):
        raise errors.InvalidDType(tensor.dtype, what="Arrow has no array of such elements in this layout")
    kind = pyarrow.from_numpy_dtype(tensor.dtype.typestr)
    return pyarrow.Array.from_buffers(kind, tensor.size, [None, pyarrow.py_buffer(tensor)])


explain_misspellings(globals())
