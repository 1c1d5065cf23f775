"""Owns: blocks as buffers of Apache Arrow. Must not know: tensors. pyarrow is loaded when it is first used.

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

from typing import TYPE_CHECKING

from tensormem import errors
from tensormem.interop.library import load
from tensormem.mr import DeviceBlock, DeviceMemoryResource
from tensormem.streams import StreamLike

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["allocate_buffer", "buffer"]


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
