"""Owns: what a space means for memory that somebody else made: its DLPack device, its driver, and whether the CPU
reaches it. Must not know: tensors.
"""

from __future__ import annotations

from typing import Any

from tensormem import drivers, errors
from tensormem._core import Driver
from tensormem.drivers import Where, resolve
from tensormem.memories.kinds import TensorMemory
from tensormem.memories.mem import vendor_of
from tensormem.spaces import LogicalMemorySpace, SpaceKind, gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["describe_place", "foreign_place", "gpu_of_pointer"]


def describe_place(said: WhereLike) -> dict[str, Any]:
    """What `tensor_over` has to be told of memory in a space: of the vendor that was said, or whose driver is here.

    >>> describe_place("main")["device"]
    (1, 0)
    """
    where = resolve(said)
    space = where.space
    try:
        driver = where.driver
    except errors.DriverUnavailable as refused:
        if space.kind is SpaceKind.GPU:
            raise errors.MemoryUnavailable(str(where), refused.reason) from None
        driver = drivers.host()
    device_type, device_id = space.to_dlpack(vendor_of(driver))
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
    where = resolve((device_type, device_id), dlpack=True)
    return where.space, _driver(where), where.space.kind is not SpaceKind.GPU


def gpu_of_pointer(source: Any) -> dict[str, Any]:
    """The place of memory that came by the CUDA array interface, which does not say which GPU it is."""
    device = getattr(getattr(source, "device", None), "id", 0)
    return describe_place(gpu(device if isinstance(device, int) else 0))


def _driver(where: Where) -> Driver | None:
    try:
        return where.driver
    except errors.DriverUnavailable:
        return None
