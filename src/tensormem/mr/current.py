"""Owns: which resource serves whoever does not name one: per driver and device, and for a while by `use_resource`.

`set_per_device_resource` is for the whole process; `use_resource` for one thread or asynchronous task.
Must not know: who asks.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tensormem import errors
from tensormem._core import Driver, host_driver, kind_of
from tensormem.mr.resources import (
    DeviceMemoryResource,
    DmaMemoryResource,
    GpuMemoryResource,
    HostMemoryResource,
    KindMemoryResource,
    PinnedMemoryResource,
    PixelBufferResource,
    PoolMemoryResource,
    SharedMemoryResource,
)

__all__ = [
    "cells",
    "forget_driver",
    "get_current_device_resource",
    "get_kind_resource",
    "get_per_device_resource",
    "get_pinned_resource",
    "set_current_device_resource",
    "set_kind_resource",
    "set_per_device_resource",
    "set_pinned_resource",
    "use_resource",
]

_Place = tuple[str, int]
_PINNED = -1  # stands for no device: the pinned memory of a driver

_lock = threading.Lock()
_resources: dict[_Place, DeviceMemoryResource] = {}
_in_use: ContextVar[dict[_Place, DeviceMemoryResource] | None] = ContextVar("tensormem.mr.in_use", default=None)


def get_per_device_resource(device: int | None = None, driver: Driver | None = None) -> DeviceMemoryResource:
    """The resource of a device, for the whole process; until one is set, plain memory of the driver.

    >>> import tensormem as tm
    >>> tm.mr.get_per_device_resource(0)
    <HostMemoryResource on host:0>
    """
    place = _place(device, driver)
    with _lock:
        if place not in _resources:
            _resources[place] = _plain(place)
        return _resources[place]


def set_per_device_resource(device: int, mr: DeviceMemoryResource) -> None:
    """Make `mr` the resource of `device` of its driver, for the whole process. Blocks that are out stay with theirs."""
    _check(mr)
    place = _place(device, mr.driver)
    if mr.device_ordinal != device:
        raise errors.InvalidArgument(f"{mr!r} serves device {mr.device_ordinal}, not {device}")
    with _lock:
        _resources[place] = mr


def get_current_device_resource(driver: Driver | None = None, device: int | None = None) -> DeviceMemoryResource:
    """The resource that serves this thread or task now: the innermost `use_resource`, or the device's.

    >>> import tensormem as tm
    >>> pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    >>> with tm.mr.use_resource(pool):
    ...     tm.mr.get_current_device_resource() is pool
    True
    """
    local = _in_use.get()
    if local is not None and (found := local.get(_place(device, driver))) is not None:
        return found
    return get_per_device_resource(device, driver)


def set_current_device_resource(mr: DeviceMemoryResource) -> None:
    """Make `mr` the resource of its own device, for the whole process."""
    _check(mr)
    set_per_device_resource(mr.device_ordinal, mr)


@contextmanager
def use_resource(mr: DeviceMemoryResource) -> Iterator[DeviceMemoryResource]:
    """Inside, `mr` serves its device, in this thread or asynchronous task alone."""
    _check(mr)
    place = _place(mr.device_ordinal, mr.driver)
    token = _in_use.set({**(_in_use.get() or {}), place: mr})
    try:
        yield mr
    finally:
        _in_use.reset(token)


def forget_driver(name: str) -> None:
    """Let go of the resources of a driver that is closing."""
    with _lock:
        for place in [place for place in _resources if place[0] == name]:
            del _resources[place]
    for key in [key for key in _kinds if key[1] == name]:
        del _kinds[key]


def cells() -> tuple[ContextVar[dict[_Place, DeviceMemoryResource] | None], dict[_Place, DeviceMemoryResource]]:
    """What holds the current resource: of this thread or task, and of the process. For the compiled core, which looks
    there without calling Python; nobody else changes them."""
    return _in_use, _resources


def get_pinned_resource(driver: Driver) -> DeviceMemoryResource:
    """A pool of pinned memory that a driver knows as its own. Locking pages is slow, so they are kept."""
    place = driver.name, _PINNED
    with _lock:
        if place not in _resources:
            leaf = PinnedMemoryResource() if driver.name == "host" else PinnedMemoryResource(f"{driver.name}:0")
            _resources[place] = PoolMemoryResource(leaf)
        return _resources[place]


def set_pinned_resource(driver: Driver, mr: DeviceMemoryResource) -> None:
    """Let `mr` serve the pinned memory that `driver` knows as its own, for the whole process."""
    _check(mr)
    with _lock:
        _resources[driver.name, _PINNED] = mr


_LEAVES = {"shm": SharedMemoryResource, "dma": DmaMemoryResource, "pbo": PixelBufferResource}
_kinds: dict[tuple[str, str, int], DeviceMemoryResource] = {}


def get_kind_resource(kind: str, driver: Driver | None = None) -> DeviceMemoryResource:
    """The resource that counts memory of a kind ("shm", "dma", "pbo", or one of your own) where nobody names one.

    With a GPU's `driver`, the one for memory of others that was imported into that GPU's space by descriptor.

    >>> import tensormem as tm
    >>> tm.mr.get_kind_resource("shm")
    <SharedMemoryResource on host:0>
    """
    place = (str(kind), "host", 0) if driver is None else (str(kind), driver.name, driver.device)
    found = _kinds.get(place)
    if found is None:
        leaf = _LEAVES.get(kind) if driver is None else None
        found = _kinds.setdefault(place, KindMemoryResource(kind, driver) if leaf is None else leaf())
    return found


def set_kind_resource(kind: str, mr: DeviceMemoryResource) -> None:
    """Let `mr`, a leaf of this kind or a stack over one, serve memory of a kind for the whole process.

    >>> import tensormem as tm
    >>> before = tm.mr.get_kind_resource("shm")
    >>> tm.mr.set_kind_resource("shm", tm.mr.LimitingResourceAdaptor(tm.mr.SharedMemoryResource(), "1MiB"))
    >>> tm.zeros(4, memory="shm").storage.block.mr.bytes_outstanding
    16
    >>> tm.mr.set_kind_resource("shm", before)
    """
    _check(mr)
    found = kind_of(mr)
    if found != kind:
        raise errors.InvalidArgument(f"{mr!r} makes {found or 'plain'} memory, and {kind} was asked for")
    _kinds[str(kind), mr.driver.name, mr.device_ordinal] = mr


def _place(device: int | None, driver: Driver | None) -> _Place:
    if device is None:
        device = 0 if driver is None else driver.device
    if device < 0:
        raise errors.InvalidArgument(f"a device has a number from 0, not {device!r}")
    return ("host" if driver is None else driver.name, device)


def _plain(place: _Place) -> DeviceMemoryResource:
    name, device = place
    if name == "host" and device < host_driver().device_count:
        return HostMemoryResource()
    if name != "host":
        return GpuMemoryResource(f"{name}:{device}")
    raise errors.InvalidArgument(f"there is no device {device} on the {name} driver")


def _check(mr: object) -> None:
    if not isinstance(mr, DeviceMemoryResource):
        raise errors.InvalidArgument(f"a resource is needed, not {type(mr).__name__}")
