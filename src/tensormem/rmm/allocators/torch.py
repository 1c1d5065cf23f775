"""Owns: PyTorch's pluggable allocator over the current resource of each device. Must not know: tensors.

torch is loaded when `rmm_torch_allocator` is first asked for, which is None where torch has no CUDA.

>>> from tensormem.rmm.allocators.torch import rmm_torch_allocator
>>> torch.cuda.memory.change_current_allocator(rmm_torch_allocator)  # doctest: +SKIP
"""

from functools import cache
from typing import Any

from tensormem import errors
from tensormem.interop import torch as interop
from tensormem.public_functions import explain_misspellings
from tensormem.rmm.pylibrmm.memory_resource import DeviceMemoryResource, get_current_device_resource
from tensormem.rmm.pylibrmm.memory_resource.per_device import subscribe, unsubscribe

TYPE_CHECKING = False
if TYPE_CHECKING:
    rmm_torch_allocator: Any

__all__ = ["follow_current_resource", "rmm_torch_allocator", "unfollow_current_resource"]


def __getattr__(name: str) -> Any:
    if name == "rmm_torch_allocator":
        return _allocator()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def follow_current_resource() -> None:
    """From now on the exported functions allocate, for each device, from the resource that is current there."""
    get_current_device_resource()
    subscribe(_register)


def unfollow_current_resource() -> None:
    """From now on the exported functions stay with the resources that they have."""
    unsubscribe(_register)


@cache
def _allocator() -> Any:
    try:
        made = interop.make_allocator(get_current_device_resource().resource)
    except (ModuleNotFoundError, errors.DriverUnavailable, errors.InvalidArgument):
        return None
    follow_current_resource()
    return made


def _register(device: int, mr: DeviceMemoryResource) -> None:
    interop.register(mr.resource, device)


explain_misspellings(globals())
