"""Owns: which resource serves whoever does not name one: per driver and device, and for a while by `use_resource`.

`set_per_device_resource` is for the whole process; `use_resource` for one thread or asynchronous task. Where limits are
in force (`tensormem.mr.limits`), what is served stands under them.
Must not know: who asks.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakValueDictionary

from tensormem import errors
from tensormem._core import (
    AllocationLimit,
    Budget,
    Driver,
    forget_destinations,
    host_driver,
    install_limits,
    kind_of,
    space_of,
)
from tensormem.drivers import COMPUTING, resolve
from tensormem.mr import limits
from tensormem.mr.resources import (
    ArenaMemoryResource,
    BinningMemoryResource,
    DeviceMemoryResource,
    DmaMemoryResource,
    FixedSizeMemoryResource,
    GpuMemoryResource,
    HostMemoryResource,
    KindMemoryResource,
    LimitingResourceAdaptor,
    ManagedMemoryResource,
    PinnedMemoryResource,
    PixelBufferResource,
    PoolMemoryResource,
    SharedMemoryResource,
    TrackingResourceAdaptor,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = [
    "budgets_in_force",
    "cells",
    "forget_driver",
    "get_current_device_resource",
    "get_current_managed_resource",
    "get_current_pinned_resource",
    "get_kind_resource",
    "get_per_device_resource",
    "get_pinned_resource",
    "measure_everywhere",
    "set_current_device_resource",
    "set_kind_resource",
    "set_per_device_resource",
    "set_pinned_resource",
    "trim",
    "use_limit",
    "use_resource",
]

_Place = tuple[str, int]
# These stand for no device: the pinned and the managed memory of a driver.
_PINNED = -1
_MANAGED = -2

_lock = threading.Lock()
_resources: dict[_Place, DeviceMemoryResource] = {}
_in_use: ContextVar[dict[_Place, DeviceMemoryResource] | None] = ContextVar("tensormem.mr.in_use", default=None)


def get_per_device_resource(
    device: "WhereLike | int | None" = None, driver: "WhereLike | None" = None
) -> DeviceMemoryResource:
    """The resource of a device, for the whole process. Until one is set: plain memory on the host, and on a GPU, where
    making memory is dear, a pool (`trim` returns what it keeps).

    `device` is a number on `driver` (the host's unless told), or says both: "gpu:1", "main", `tm.gpu(1)`.

    >>> import tensormem as tm
    >>> tm.mr.get_per_device_resource(0)
    <HostMemoryResource on host:0>
    """
    place = _place(device, driver)
    with _lock:
        if place not in _resources:
            _resources[place] = _plain(place)
        return _resources[place]


def set_per_device_resource(device: "WhereLike | int", mr: DeviceMemoryResource) -> None:
    """Make `mr` the resource of `device` of its driver, for the whole process. Blocks that are out stay with theirs."""
    _check(mr)
    place = _place(device, mr.driver)
    if mr.device_ordinal != place[1]:
        raise errors.InvalidArgument(f"{mr!r} serves device {mr.device_ordinal}, not {device}")
    with _lock:
        _resources[place] = mr
    _forget_served()


def get_current_device_resource(
    driver: "WhereLike | None" = None, device: "WhereLike | int | None" = None
) -> DeviceMemoryResource:
    """The resource that serves this thread or task now: the innermost `use_resource`, or the device's.

    Of main memory, unless told: `driver` and `device` are as for `get_per_device_resource`.

    >>> import tensormem as tm
    >>> pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource())
    >>> with tm.mr.use_resource(pool):
    ...     tm.mr.get_current_device_resource() is pool
    True
    """
    place = _place(device, driver)
    return _serving(place) or _under_limits(place, get_per_device_resource(device, driver))


def _serving(place: _Place) -> DeviceMemoryResource | None:
    """What this thread or task has for a place, if it has its own."""
    local = _in_use.get()
    return None if local is None else local.get(place)


def _under_limits(place: _Place, mr: DeviceMemoryResource) -> DeviceMemoryResource:
    """The resource of the process under the limits of this thread or task, made once for each of their scopes."""
    local = _in_use.get()
    limited = limits.apply(mr)
    if limited is not mr and local is not None:
        return local.setdefault(place, limited)
    return limited


def set_current_device_resource(mr: DeviceMemoryResource) -> None:
    """Make `mr` the resource of its own device, for the whole process."""
    _check(mr)
    set_per_device_resource(mr.device_ordinal, mr)


@contextmanager
def use_resource(mr: DeviceMemoryResource) -> Iterator[DeviceMemoryResource]:
    """Inside, `mr` serves its device, in this thread or asynchronous task alone."""
    _check(mr)
    place = _place(mr.device_ordinal, mr.driver)
    token = _in_use.set({**(_in_use.get() or {}), place: limits.apply(mr)})
    try:
        yield mr
    finally:
        _in_use.reset(token)


@contextmanager
def use_limit(limit: AllocationLimit, space: str | None = None) -> Iterator[None]:
    """Inside, `limit` is charged for all memory (of a space, if one is named) that is made without a named resource."""
    place = _place(None, None)
    with limits.in_force(limit, space):
        served = {each: limits.apply(mr) for each, mr in (_in_use.get() or {}).items()}
        if place not in served:
            served[place] = limits.apply(get_per_device_resource())
        token = _in_use.set(served)
        try:
            yield
        finally:
            _in_use.reset(token)


@contextmanager
def measure_everywhere(
    limit: AllocationLimit, space: str | None = None, *, stacks: bool = False
) -> Iterator[list[TrackingResourceAdaptor]]:
    """Inside, `limit` is charged in the whole process, and blocks are tracked, with their stacks if asked for."""
    get_per_device_resource()
    for kind in _LEAVES:
        _kind_resource(kind, "main")
    with limits.in_process(limit, space):
        with _lock:
            watched = [each for places in (_resources, _kinds) for each in _watch(places, limit, space, stacks)]
        _forget_served()
        try:
            yield [tracker for *_, tracker in watched]
        finally:
            with _lock:
                for places, place, before, after, _ in watched:
                    if places.get(place) is after:
                        places[place] = before
            _forget_served()


_Places = dict[Any, DeviceMemoryResource]
_Watched = tuple[_Places, Any, DeviceMemoryResource, DeviceMemoryResource, TrackingResourceAdaptor]


def _watch(places: _Places, limit: AllocationLimit, space: str | None, stacks: bool) -> list[_Watched]:
    """Put a tracker over every resource of a space; gives where, what was there, what is there now, and the tracker."""
    watched: list[_Watched] = []
    for place, mr in list(places.items()):
        if space is None or space_of(mr) == space:
            tracker = TrackingResourceAdaptor(mr, capture_stacks=stacks)
            # Kinds are charged to whatever main memory is charged to.
            places[place] = LimitingResourceAdaptor(tracker, budget=limit) if places is _resources else tracker
            watched.append((places, place, mr, places[place], tracker))
    return watched


def budgets_in_force(driver: Driver, device: int) -> tuple[Budget, ...]:
    """The budgets that memory on a device is charged to when no resource is named, the innermost first."""
    place = _place(device, driver)
    mr = _serving(place)
    if mr is None:
        with _lock:
            mr = _resources.get(place)
    budgets = () if mr is None else limits.budgets_of(mr)
    missing = [each for each in limits.of_space(_space_name(place)) if not any(each is known for known in budgets)]
    return (*budgets, *missing)


def _space_name(place: _Place) -> str:
    return "main" if place[0] == "host" else f"gpu:{place[1]}"


def forget_driver(name: str) -> None:
    """Let go of the resources of a driver that is closing."""
    with _lock:
        for place in [place for place in _resources if place[0] == name]:
            del _resources[place]
        for kind in [kind for kind in _kinds if kind[1].startswith(f"{name}:")]:
            del _kinds[kind]
    _forget_served()


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


def get_current_pinned_resource(driver: Driver) -> DeviceMemoryResource:
    """The same for whoever asked for pinned memory: under the limits that are in force."""
    place = driver.name, _PINNED
    return _serving(place) or _under_limits(place, get_pinned_resource(driver))


def get_current_managed_resource(driver: Driver) -> DeviceMemoryResource:
    """A pool of managed memory of a driver, under the limits that are in force."""
    place = driver.name, _MANAGED
    with _lock:
        if place not in _resources:
            _resources[place] = PoolMemoryResource(ManagedMemoryResource(f"{driver.name}:0"))
        mr = _resources[place]
    return _serving(place) or _under_limits(place, mr)


def trim() -> int:
    """Return the memory that this process's default resources keep for reuse; says how many bytes.

    >>> import tensormem as tm
    >>> del_ = tm.zeros(1024, space="pinned").close()
    >>> tm.mr.trim() >= 4096
    True
    """
    with _lock:
        stacks = [*_resources.values(), *_kinds.values()]
    layers = {id(layer): layer for mr in stacks for layer in _layers(mr)}
    keepers = [layer for layer in layers.values() if isinstance(layer, PoolMemoryResource | SharedMemoryResource)]
    return sum(keeper.trim() for keeper in keepers)


def _layers(mr: DeviceMemoryResource) -> Iterator[DeviceMemoryResource]:
    """A resource and everything that it stands on: trackers and limits stand over what keeps memory."""
    layer: DeviceMemoryResource | None = mr
    while layer is not None:
        yield layer
        layer = layer.upstream_mr


def set_pinned_resource(driver: Driver, mr: DeviceMemoryResource) -> None:
    """Let `mr` serve the pinned memory that `driver` knows as its own, for the whole process."""
    _check(mr)
    with _lock:
        _resources[driver.name, _PINNED] = mr
    _forget_served()


# What hands out parts of larger memory.
_PARTERS = (PoolMemoryResource, ArenaMemoryResource, BinningMemoryResource, FixedSizeMemoryResource)
_LEAVES = {"shm": SharedMemoryResource, "dma": DmaMemoryResource, "pbo": PixelBufferResource}
_kinds: dict[tuple[str, str], DeviceMemoryResource] = {}
# Kinds under budgets, by the identities of both, which each value keeps alive.
_charged: WeakValueDictionary[tuple[int, ...], DeviceMemoryResource] = WeakValueDictionary()
# What serves a kind where no thread or task has resources or limits of its own; until anything of the process changes.
_served: dict[tuple[str, str], DeviceMemoryResource] = {}


def _forget_served() -> None:
    """What serves the process has changed: nobody may go on with what was found before."""
    global _served
    _served = {}
    forget_destinations()


def get_kind_resource(kind: str, space: "WhereLike" = "main") -> DeviceMemoryResource:
    """The resource that makes memory of a kind ("shm", "dma", "pbo", or one of your own) where nobody names one.

    It stands under the budgets that are in force where that memory is. Memory of others that was imported by descriptor
    into the `space` of a GPU has one of its own, which follows the streams of that GPU.

    >>> import tensormem as tm
    >>> tm.mr.get_kind_resource("shm")
    <SharedMemoryResource on host:0>
    """
    served = _served if _in_use.get() is None else {}  # whoever changes the process puts another in its place
    place = "main" if space == "main" else _kind_place(space)
    found = served.get((kind, place))
    if found is None:
        found = served[kind, place] = _charged_kind(str(kind), place)
    return found


def _kind_place(space: "WhereLike") -> str:
    """What tells the memory of one device from that of others: "main", "cuda:1", "rocm:0"."""
    driver = _driver_of(space)
    return "main" if driver.name == "host" else f"{driver.name}:{driver.device}"


def _charged_kind(kind: str, place: str) -> DeviceMemoryResource:
    mr = _kind_resource(kind, place)
    budgets = _budgets_in(place)
    if not budgets:
        return mr
    key = id(mr), *map(id, budgets)
    found = _charged.get(key)
    if found is None:
        for budget in reversed(budgets):
            mr = LimitingResourceAdaptor(mr, budget=budget)
        _charged[key] = found = mr
    return found


def _budgets_in(place: str) -> tuple[Budget, ...]:
    driver = host_driver() if place == "main" else resolve(place).driver
    return budgets_in_force(driver, driver.device)


def _kind_resource(kind: str, place: str) -> DeviceMemoryResource:
    found = _kinds.get((kind, place))
    if found is None:
        leaf = _LEAVES.get(kind) if place == "main" else None
        made = KindMemoryResource(kind, place) if leaf is None else leaf()
        found = _kinds.setdefault((kind, place), made)
    return found


def set_kind_resource(kind: str, mr: DeviceMemoryResource) -> None:
    """Let `mr`, a leaf of this kind or a stack over one, serve memory of a kind for the whole process.

    >>> import tensormem as tm
    >>> before = tm.mr.get_kind_resource("shm")
    >>> tm.mr.set_kind_resource("shm", tm.mr.LimitingResourceAdaptor(tm.mr.SharedMemoryResource(), "1MiB"))
    >>> tensor = tm.zeros(4, memory="shm")
    >>> tensor.storage.block.mr.bytes_outstanding
    16
    >>> tm.mr.set_kind_resource("shm", before)
    """
    _check(mr)
    found = kind_of(mr)
    if found != kind:
        raise errors.InvalidArgument(f"{mr!r} makes {found or 'plain'} memory, and {kind} was asked for")
    for layer in _layers(mr):
        if isinstance(layer, _PARTERS):
            raise errors.MemoryUnavailable(
                str(kind),
                f"{layer!r} hands out parts of larger memory, which cannot be shared or mapped by themselves; let a "
                "leaf or an adaptor over one serve it",
            )
    _kinds[str(kind), _kind_place(mr.driver)] = mr
    _forget_served()


def _place(device: "WhereLike | int | None", driver: "WhereLike | None") -> _Place:
    owner = driver if driver is None or isinstance(driver, Driver) else _driver_of(driver)
    if device is None:
        device = 0 if owner is None else owner.device
    elif type(device) is not int:
        found = _driver_of(device)
        if owner is not None and owner.name != found.name:
            raise errors.InvalidArgument(f"{device!r:.80} is not a device of the {owner.name} driver")
        owner, device = found, found.device
    if device < 0:
        raise errors.InvalidArgument(f"a device has a number from 0, not {device!r}")
    return ("host" if owner is None else owner.name, device)


def _driver_of(said: "WhereLike | int") -> Driver:
    return resolve(said, COMPUTING, "a device's own resource serves memory").driver


def _plain(place: _Place) -> DeviceMemoryResource:
    name, device = place
    if name == "host" and device < host_driver().device_count:
        return HostMemoryResource()
    if name != "host":
        return PoolMemoryResource(GpuMemoryResource(f"{name}:{device}"))
    raise errors.InvalidArgument(f"there is no device {device} on the {name} driver")


install_limits(budgets_in_force)


def _check(mr: object) -> None:
    if not isinstance(mr, DeviceMemoryResource):
        raise errors.InvalidArgument(f"a resource is needed, not {type(mr).__name__}")
