"""Owns: a resource as CuPy's allocator. Must not know: tensors. CuPy is loaded when it is first used.

>>> import tensormem as tm
>>> cupy.cuda.set_allocator(tm.interop.cupy.allocator(mr))  # doctest: +SKIP
>>> tm.interop.cupy.allocator(tm.mr.HostMemoryResource())
Traceback (most recent call last):
tensormem.errors.InvalidArgument: invalid argument: CuPy needs memory that a GPU can touch, ...
"""

from collections.abc import Callable
from typing import Any

from tensormem import errors
from tensormem.interop.library import check_device_accessible, hook_tag, load
from tensormem.mr import DeviceMemoryResource
from tensormem.public_functions import explain_misspellings

__all__ = ["allocator"]


def allocator(mr: DeviceMemoryResource, *, tag: str | None = None) -> Callable[[int], Any]:
    """What `cupy.cuda.set_allocator` takes: arrays get their memory from `mr`, on CuPy's current stream.

    The memory goes back, on the stream it was allocated on, when CuPy drops it. Its tag is `tag`,
    or the one in force here (`tm.tag`), or "cupy".
    """
    check_device_accessible(mr, "CuPy")
    cuda = load("cupy", "cupy-cuda13x").cuda
    named = hook_tag(tag, "cupy")

    def allocate(nbytes: int) -> Any:
        device = cuda.Device().id
        if device != mr.device_ordinal and not mr.is_host_accessible:
            raise errors.InvalidArgument(f"CuPy's current device is {device}; {mr!r} is memory of {mr.device_ordinal}")
        if nbytes == 0:
            return cuda.MemoryPointer(cuda.UnownedMemory(0, 0, mr, device), 0)
        stream: Any = _CurrentStream(cuda)
        block = mr.allocate(nbytes, stream, tag=named)
        return cuda.MemoryPointer(cuda.UnownedMemory(block.ptr, block.nbytes, block, device), 0)

    return allocate


class _CurrentStream:
    """CuPy's current stream by the protocol that tensormem takes streams by; older CuPy does not offer it."""

    def __init__(self, cuda: Any) -> None:
        self._handle: int = cuda.get_current_stream().ptr

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


explain_misspellings(globals())
