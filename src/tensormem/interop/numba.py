"""Owns: a resource as Numba's memory manager for CUDA (its External Memory Management interface, version 1).

Must not know: tensors. Numba is loaded when it is first used.

>>> import tensormem as tm
>>> numba.cuda.set_memory_manager(tm.interop.numba.memory_manager(mr))  # doctest: +SKIP
>>> tm.interop.numba.memory_manager(tm.mr.HostMemoryResource())
Traceback (most recent call last):
tensormem.errors.InvalidArgument: invalid argument: Numba needs memory that a GPU can touch, ...
"""

import ctypes
from typing import Any, ClassVar

from tensormem import errors
from tensormem.interop.library import check_device_accessible, hook_tag, load
from tensormem.mr import DeviceBlock, DeviceMemoryResource
from tensormem.public_functions import explain_misspellings

__all__ = ["memory_manager"]


def memory_manager(mr: DeviceMemoryResource, *, tag: str | None = None) -> type[Any]:
    """A class for `numba.cuda.set_memory_manager`: device arrays get their memory from `mr`.

    Numba makes one manager per CUDA context from it. Pinned and mapped host memory stay Numba's own.
    The tag of what it allocates is `tag`, or the one in force here (`tm.tag`), or "numba".
    """
    check_device_accessible(mr, "Numba")
    cuda = load("numba.cuda", "numba-cuda")
    bases = _FromResource, cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager
    return type(
        "ResourceMemoryManager", bases, {"mr": mr, "tag": hook_tag(tag, "numba"), "__doc__": f"Allocates from {mr!r}."}
    )


class _FromResource:
    """What Numba asks of a memory manager for device memory; the rest comes from Numba's own base class."""

    interface_version: ClassVar[int] = 1
    mr: ClassVar[DeviceMemoryResource]
    tag: ClassVar[str]
    context: Any

    def initialize(self) -> None:
        device, home = self.context.device.id, self.mr.device_ordinal
        if device != home and not self.mr.is_host_accessible:
            raise errors.InvalidArgument(f"Numba's context is of device {device}; {self.mr!r} is memory of {home}")

    def memalloc(self, size: int) -> Any:
        cuda = load("numba.cuda", "numba-cuda")
        block = self.mr.allocate(size, tag=self.tag)
        return cuda.MemoryPointer(self.context, _pointer(cuda.cudadrv.driver, block), size, finalizer=_Release(block))

    def get_memory_info(self) -> Any:
        cuda = load("numba.cuda", "numba-cuda")
        return cuda.MemoryInfo(*self.mr.driver.memory_info(self.mr.device_ordinal))


def _pointer(driver: Any, block: DeviceBlock) -> Any:
    """The address in the type that this Numba's driver layer takes."""
    if getattr(driver, "USE_NV_BINDING", True):
        return driver.binding.CUdeviceptr(block.ptr)
    return ctypes.c_void_p(block.ptr)


class _Release:
    """Called by Numba when a pointer's memory is to be freed; dropping the block gives it back."""

    def __init__(self, block: DeviceBlock) -> None:
        self._block: DeviceBlock | None = block

    def __call__(self) -> None:
        self._block = None


explain_misspellings(globals())
