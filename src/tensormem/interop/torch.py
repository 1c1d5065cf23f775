"""Owns: resources behind PyTorch's pluggable CUDA allocator, which calls C functions of a shared library by name; and
tensors as torch's and back.

The functions are exported by our native library and never touch Python. One resource per device; memory goes back to
the resource it came from, whichever is registered by then. What a function had to refuse is told by `last_error`.
Must not know: what torch computes.

>>> import ctypes
>>> import tensormem as tm
>>> mr = tm.mr.HostMemoryResource()
>>> path, allocate_name, deallocate_name = tm.interop.torch.allocator_path_and_names()
>>> library = ctypes.CDLL(path)  # as torch does
>>> allocate, deallocate = getattr(library, allocate_name), getattr(library, deallocate_name)
>>> allocate.restype, deallocate.restype = ctypes.c_void_p, None
>>> tm.interop.torch.register(mr, device=0)
>>> pointer = allocate(ctypes.c_ssize_t(4096), 0, None)
>>> mr.bytes_outstanding
4096
>>> deallocate(ctypes.c_void_p(pointer), ctypes.c_ssize_t(4096), 0, None)
>>> mr.bytes_outstanding
0
>>> tm.interop.torch.unregister(0)
"""

import ctypes
import threading
from typing import Any

from tensormem import errors
from tensormem._core import (
    device_hook_blocks,
    device_hook_failures,
    device_hook_last_error,
    native_library,
    note_shortage,
    set_device_hook,
)
from tensormem.drivers import GPUS, resolve
from tensormem.interop.library import check_device_accessible, hook_tag, load
from tensormem.mr import DeviceMemoryResource
from tensormem.public_functions import explain_misspellings
from tensormem.tensor import Tensor, from_dlpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = [
    "allocator_path_and_names",
    "blocks_outstanding",
    "failures",
    "from_torch",
    "last_error",
    "make_allocator",
    "register",
    "to_torch",
    "unregister",
]

_ALLOCATE = "tensormem_allocate_or_throw"  # torch takes a null pointer for memory, but an exception for a refusal
_DEALLOCATE = "tensormem_deallocate"
_RECORD_STREAM = "tensormem_record_stream"

# What serves a device, and the tag of its blocks.
_registered: dict[int, tuple[DeviceMemoryResource, str]] = {}
# The last error that was asked for, and how many refusals there had been: the same refusal gives the same error.
_told: tuple[int, errors.TensormemError | None] = (0, None)
_telling = threading.Lock()


def make_allocator(mr: DeviceMemoryResource, device: "WhereLike | int | None" = None, *, tag: str | None = None) -> Any:
    """Register `mr` and give the `torch.cuda.memory.CUDAPluggableAllocator` that allocates from it.

    Give it to `torch.cuda.memory.change_current_allocator` before torch allocates anything, or to `torch.cuda.MemPool`.
    `record_stream` is honoured: memory used on other streams is not handed out again before they have passed.
    """
    check_device_accessible(mr, "torch's CUDA allocator")
    torch = load("torch", "torch")
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise errors.DriverUnavailable("cuda", f"torch {torch.__version__} was built without CUDA")
    path, allocate, deallocate = allocator_path_and_names()
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, allocate, deallocate)
    record = ctypes.cast(getattr(ctypes.CDLL(path), _RECORD_STREAM), ctypes.c_void_p).value
    allocator.allocator().set_record_stream_fn(record)
    register(mr, device, tag=tag)
    return allocator


def allocator_path_and_names() -> tuple[str, str, str]:
    """The shared library, and the names in it of the functions that allocate and deallocate.

    The first throws a C++ exception when memory is refused, as torch expects; `tensormem_allocate` beside it is the
    same for C and gives a null pointer.
    """
    return native_library(), _ALLOCATE, _DEALLOCATE


def register(mr: DeviceMemoryResource, device: "WhereLike | int | None" = None, *, tag: str | None = None) -> None:
    """From now on the exported functions allocate for `device` (the resource's own unless told) from `mr`.

    The tag of what they allocate is `tag`, or the one in force here (`tm.tag`), or "torch".
    """
    if not isinstance(mr, DeviceMemoryResource):
        raise errors.InvalidArgument(f"a memory resource is registered, not {type(mr).__name__}")
    number = mr.device_ordinal if device is None else _number(device)
    named = hook_tag(tag, "torch")
    set_device_hook(number, mr, named)
    _registered[number] = mr, named


def unregister(device: "WhereLike | int") -> None:
    """The exported functions refuse to allocate for `device` from now on; what is out can still be given back."""
    number = _number(device)
    set_device_hook(number, None, "")
    _registered.pop(number, None)


def _number(device: "WhereLike | int") -> int:
    """The number by which torch asks for memory of a GPU."""
    return resolve(device, GPUS, "torch's CUDA allocator serves memory", ordinals=True).number


def blocks_outstanding() -> int:
    """How many blocks the functions have handed out that were not given back."""
    return device_hook_blocks()


def failures() -> int:
    """How often a function had to refuse: no memory, no resource, or a free of what is not ours."""
    return device_hook_failures()


def last_error() -> errors.TensormemError | None:
    """Why a function refused the last time; None if none ever did. A shortage has its report, and is written to
    TENSORMEM_OOM_DUMP when it is first asked for.
    """
    global _told
    with _telling:
        refusals = device_hook_failures()
        if _told[0] != refusals:
            error, device = device_hook_last_error()
            if error is not None and device in _registered:
                note_shortage(error, *_registered[device])
            _told = refusals, error
        return _told[1]


def from_torch(tensor: Any) -> Tensor:
    """A tensor over the memory of a torch tensor, also of one that records gradients: writing here is not recorded."""
    return from_dlpack(tensor.detach())


def to_torch(tensor: Tensor) -> Any:
    """A torch tensor over the same memory. torch has no read-only tensors: such a one is refused, not made writable."""
    return load("torch", "torch").from_dlpack(tensor)


explain_misspellings(globals())
