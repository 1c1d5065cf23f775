"""Owns: `mem`, memory of a resource: which resource serves a space, and in which space a resource's memory is.

Must not know: tensors, and the other kinds of memory.
"""

from __future__ import annotations

from tensormem import errors
from tensormem._core import space_of, storage_from
from tensormem.drivers import resolve
from tensormem.memories.kinds import TensorMemory
from tensormem.mr import (
    DeviceMemoryResource,
    get_current_device_resource,
)
from tensormem.mr.current import (
    get_current_managed_resource,
    get_current_pinned_resource,
    set_per_device_resource,
    set_pinned_resource,
)
from tensormem.spaces import LogicalMemorySpace, SpaceKind, main, managed, pinned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

    from tensormem._core import Driver, Storage, StreamLike
    from tensormem.drivers.where import WhereLike

__all__ = ["allocate", "place_of", "resource_of", "serve", "vendor_of"]

_VENDORS = {"cuda": "cuda", "rocm": "rocm", "hip": "rocm"}


def allocate(
    nbytes: SupportsIndex | str,
    space: WhereLike = main,
    *,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    alignment: SupportsIndex | None = None,
    tag: str | None = None,
) -> Storage:
    """A storage of memory from `mr`, or from the resource that serves `space`.

    >>> import tensormem as tm
    >>> allocate(64, tm.main)
    <Storage ...: 64 bytes of mem in main, 0x...>
    """
    return storage_from(resource_of(space) if mr is None else mr, nbytes, stream, alignment, tag)


def resource_of(space: WhereLike) -> DeviceMemoryResource:
    """The resource that serves a space now: the current one of its device; for pinned memory, a pool of it.

    Where nothing serves it, `MemoryUnavailable` with the reason.
    """
    if space is main:
        return get_current_device_resource()
    where = resolve(space)
    if where.space is main:
        return get_current_device_resource()
    try:
        # For pinned memory, whoever copies from it has to know it: the first GPU's driver, or the host's without one.
        driver = where.driver
        if where.space is pinned:
            return get_current_pinned_resource(driver)
        if where.space is managed:
            return get_current_managed_resource(driver)
        return get_current_device_resource(driver, driver.device)
    except (errors.InvalidArgument, errors.DriverUnavailable) as refused:
        raise errors.MemoryUnavailable(str(where), str(refused)) from None


def serve(space: LogicalMemorySpace, mr: DeviceMemoryResource) -> None:
    """Let `mr` serve a space for the whole process, from now on."""
    if space is pinned:
        set_pinned_resource(resolve(pinned).driver, mr)
    elif space is managed:
        raise errors.InvalidArgument("managed memory has no current resource: name one with mr=")
    else:
        set_per_device_resource(mr.device_ordinal, mr)


def vendor_of(driver: Driver) -> str | None:
    """Whose GPU a driver drives: "cuda", "rocm", or None for the host."""
    return _VENDORS.get(driver.name)


def place_of(mr: DeviceMemoryResource) -> tuple[LogicalMemorySpace, TensorMemory, tuple[int, int]]:
    """The space of a resource's memory, its kind, and its DLPack device."""
    space = LogicalMemorySpace.parse(space_of(mr))
    device_type, device_id = space.to_dlpack(vendor_of(mr.driver))
    return space, TensorMemory.MEM, (int(device_type), device_id)


def host_reaches(space: LogicalMemorySpace) -> bool:
    """Whether the CPU can touch memory of this space."""
    return space.kind is not SpaceKind.GPU
