"""Owns: CuPy's allocator over the current resource. Must not know: tensors. CuPy is loaded when it is first used.

>>> from tensormem.rmm.allocators.cupy import rmm_cupy_allocator
>>> cupy.cuda.set_allocator(rmm_cupy_allocator)  # doctest: +SKIP
"""

from typing import Any

from tensormem.interop.library import load
from tensormem.public_functions import explain_misspellings
from tensormem.rmm.pylibrmm.device_buffer import DeviceBuffer
from tensormem.rmm.pylibrmm.stream import Stream

__all__ = ["rmm_cupy_allocator"]


def rmm_cupy_allocator(nbytes: int) -> Any:
    """Memory for a CuPy array, from the resource that is current now, on CuPy's current stream."""
    cuda = load("cupy", "cupy-cuda13x").cuda
    buffer = DeviceBuffer(size=nbytes, stream=Stream(cuda.get_current_stream()))
    device = -1 if buffer.ptr else cuda.Device().id
    return cuda.MemoryPointer(cuda.UnownedMemory(buffer.ptr, buffer.size, buffer, device), 0)


explain_misspellings(globals())
