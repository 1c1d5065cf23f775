"""Owns: what a space means for memory that somebody else made: its DLPack device, its driver, and whether the CPU
reaches it. Must not know: tensors.
"""

from __future__ import annotations

from typing import Any

from tensormem import drivers, errors
from tensormem._core import Driver
from tensormem.memories.kinds import TensorMemory
from tensormem.spaces import DeviceType, LogicalMemorySpace, SpaceKind, gpu, main

__all__ = ["describe_place", "foreign_place", "gpu_of_pointer"]

_DRIVER_NAMES = {
    DeviceType.CUDA: "cuda",
    DeviceType.CUDA_HOST: "cuda",
    DeviceType.CUDA_MANAGED: "cuda",
    DeviceType.ROCM: "rocm",
    DeviceType.ROCM_HOST: "rocm",
}


def describe_place(space: LogicalMemorySpace) -> dict[str, Any]:
    """What `tensor_over` has to be told of memory in a space: of the vendor whose driver is here.

    >>> describe_place(main)["device"]
    (1, 0)
    """
    driver = drivers.host()
    vendor = None
    if space is not main:
        for name in ("cuda", "rocm"):
            found = _driver(name, space.device_id)
            if found is not None:
                driver, vendor = found, name
                break
    if vendor is None and space.kind is SpaceKind.GPU:
        raise errors.MemoryUnavailable(str(space), "no driver of a GPU works here")
    device_type, device_id = space.to_dlpack(vendor)
    return {
        "space": space,
        "memory": TensorMemory.MEM,
        "device": (int(device_type), device_id),
        "driver": driver,
        "host": space.kind is not SpaceKind.GPU,
    }


def foreign_place(device_type: int, device_id: int) -> tuple[LogicalMemorySpace, Driver | None, bool]:
    """The space, the driver if it is here, and whether the CPU reaches it, of memory that came by DLPack.

    >>> foreign_place(1, 0)[0]
    tm.main
    """
    space = LogicalMemorySpace.from_dlpack(device_type, device_id)
    name = _DRIVER_NAMES.get(DeviceType(device_type))
    return space, drivers.host() if name is None else _driver(name, device_id), space.kind is not SpaceKind.GPU


def gpu_of_pointer(source: Any) -> dict[str, Any]:
    """The place of memory that came by the CUDA array interface, which does not say which GPU it is."""
    device = getattr(getattr(source, "device", None), "id", 0)
    return describe_place(gpu(device if isinstance(device, int) else 0))


def _driver(name: str, device_id: int) -> Driver | None:
    try:
        return drivers.get(f"{name}:{device_id}")
    except errors.DriverUnavailable:
        return None
