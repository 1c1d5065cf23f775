"""Owns: Numba's memory manager over the current resource. Must not know: tensors.

Numba is loaded when `RMMNumbaManager` is first asked for.

>>> from tensormem.rmm.allocators.numba import RMMNumbaManager
>>> numba.cuda.set_memory_manager(RMMNumbaManager)  # doctest: +SKIP
>>> RMMNumbaManager.__name__
'RMMNumbaManager'
"""

import ctypes
from functools import cache
from typing import Any

from tensormem.interop.library import load
from tensormem.public_functions import explain_misspellings
from tensormem.rmm.pylibrmm.device_buffer import DeviceBuffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    RMMNumbaManager: Any

__all__ = ["RMMNumbaManager"]


def __getattr__(name: str) -> Any:
    if name in ("RMMNumbaManager", "_numba_memory_manager"):
        return _manager()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _manager() -> type[Any]:
    """The class that `numba.cuda.set_memory_manager` takes, made once from Numba's own."""
    cuda = load("numba.cuda", "numba-cuda")
    return type("RMMNumbaManager", (_FromCurrentResource, cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager), {})


class _FromCurrentResource:
    """What Numba asks of a memory manager for device memory; the rest comes from Numba's own base class."""

    context: Any
    allocations: dict[int, Any]

    def initialize(self) -> None:
        """Nothing has to be prepared in a context."""

    def memalloc(self, size: int) -> Any:
        """Memory for a device array, from the resource that is current now."""
        cuda = load("numba.cuda", "numba-cuda")
        buffer = DeviceBuffer(size=size)
        return cuda.MemoryPointer(
            self.context, _pointer(cuda.cudadrv.driver, buffer.ptr), size, finalizer=_Release(buffer)
        )

    def get_memory_info(self) -> tuple[int, int]:
        """Refused, as in RMM: what is free in a pool is not what is free on the device."""
        raise NotImplementedError("a resource does not say how much memory is free")

    @property
    def interface_version(self) -> int:
        return 1


class _Release:
    """Called by Numba when the memory of a pointer is to be freed; dropping the buffer gives it back."""

    def __init__(self, buffer: DeviceBuffer) -> None:
        self._buffer: DeviceBuffer | None = buffer

    def __call__(self) -> None:
        self._buffer = None


def _pointer(driver: Any, address: int) -> Any:
    """The address in the type that this Numba's driver layer takes."""
    if getattr(driver, "USE_NV_BINDING", True):
        return driver.binding.CUdeviceptr(address)
    return ctypes.c_void_p(address)


explain_misspellings(globals())
