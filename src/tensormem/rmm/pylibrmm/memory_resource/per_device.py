"""Owns: which resource serves each device by RMM's calls, and the logging of all of them.

A resource that hands out the memory of its device serves `tensormem` there too. Must not know: who allocates.
"""

import threading
from collections.abc import Callable

from tensormem import drivers, errors, mr
from tensormem._core import Driver, space_of
from tensormem.rmm._cuda.gpu import driver_of, getDevice, setDevice
from tensormem.rmm.pylibrmm.memory_resource.adaptors import LoggingResourceAdaptor
from tensormem.rmm.pylibrmm.memory_resource.device_memory_resource import DeviceMemoryResource
from tensormem.rmm.pylibrmm.memory_resource.leaves import (
    CudaMemoryResource,
    ManagedMemoryResource,
    SystemMemoryResource,
)
from tensormem.rmm.pylibrmm.memory_resource.suballocators import PoolMemoryResource

__all__ = [
    "available_device_memory",
    "disable_logging",
    "enable_logging",
    "get_current_device_resource",
    "get_log_filenames",
    "get_per_device_resource",
    "initialize",
    "is_initialized",
    "resource_in_force",
    "set_current_device_resource",
    "set_per_device_resource",
    "subscribe",
    "unsubscribe",
]

_lock = threading.RLock()
# The driver that the device had is kept beside: a simulated GPU may have come or gone since.
_served: dict[int, tuple[Driver, DeviceMemoryResource]] = {}
_subscribers: list[Callable[[int, DeviceMemoryResource], None]] = []


def get_per_device_resource(device: int) -> DeviceMemoryResource:
    """The resource of a device. Until one is set: plain memory of the GPU, or main memory where there is none.

    >>> from tensormem import rmm
    >>> rmm.mr.get_per_device_resource(0) is rmm.mr.get_current_device_resource()
    True
    """
    with _lock:
        known = _served.get(device)
        if known is not None and _still_there(known[0]):
            return known[1]
        driver = driver_of(device)
        made = _on(device, _plain)
        _served[device] = driver, made
    _tell(device, made)
    return made


def set_per_device_resource(device: int, mr: DeviceMemoryResource) -> None:
    """Let `mr` serve a device, for the whole process. What is out stays with the resource that it came from."""
    if not isinstance(mr, DeviceMemoryResource):
        raise errors.InvalidArgument(f"a resource of rmm.mr is needed, not {type(mr).__name__}")
    driver = driver_of(device)
    with _lock:
        _served[device] = driver, mr
    _serve_tensors(driver, mr)
    _tell(device, mr)


def get_current_device_resource() -> DeviceMemoryResource:
    """The resource of the current device."""
    return get_per_device_resource(getDevice())


def set_current_device_resource(mr: DeviceMemoryResource) -> None:
    """Let `mr` serve the current device, for the whole process.

    >>> from tensormem import rmm
    >>> rmm.mr.set_current_device_resource(rmm.mr.SystemMemoryResource())
    >>> rmm.mr.get_current_device_resource()
    <SystemMemoryResource over <HostMemoryResource on host:0>>
    """
    set_per_device_resource(getDevice(), mr)


def subscribe(listener: Callable[[int, DeviceMemoryResource], None]) -> None:
    """Tell `listener(device, mr)` of the resource of each device, now and whenever it changes; once, however often it
    subscribes."""
    with _lock:
        if listener not in _subscribers:
            _subscribers.append(listener)
        known = list(_served.items())
    for device, (driver, served) in known:
        if _still_there(driver):
            listener(device, served)


def unsubscribe(listener: Callable[[int, DeviceMemoryResource], None]) -> None:
    """Tell `listener` no longer."""
    with _lock:
        if listener in _subscribers:
            _subscribers.remove(listener)


def is_initialized() -> bool:
    """Whether there is a resource to allocate from; there always is one.

    >>> is_initialized()
    True
    """
    return True


def initialize(
    pool_allocator: bool,
    managed_memory: bool,
    initial_pool_size: int | str | None,
    maximum_pool_size: int | str | None,
    devices: int | list[int] | None,
    logging: bool,
    log_file_name: str | None,
) -> None:
    """Make a resource for each of `devices`, and forget those of all others. If one cannot be made, nothing changes."""

    def make() -> DeviceMemoryResource:
        served: DeviceMemoryResource = ManagedMemoryResource() if managed_memory else _plain()
        if pool_allocator:
            served = PoolMemoryResource(served, initial_pool_size, maximum_pool_size)
        return LoggingResourceAdaptor(served, log_file_name) if logging else served

    numbers = [0] if devices is None else [devices] if isinstance(devices, int) else list(devices)
    made = {device: _on(device, make) for device in numbers}
    with _lock:
        _served.clear()
    for device, served in made.items():
        set_per_device_resource(device, served)


def enable_logging(log_file_name: str | None = None) -> None:
    """Log what every device in use allocates to a file for each: "rmm.log" becomes "rmm.dev0.log".

    `log_file_name` is the variable RMM_LOG_FILE unless given.
    """
    get_current_device_resource()
    for device, served in _in_use().items():
        if not isinstance(served, LoggingResourceAdaptor):
            set_per_device_resource(device, _on(device, lambda: LoggingResourceAdaptor(served, log_file_name)))  # noqa: B023


def disable_logging() -> None:
    """End what `enable_logging` or `reinitialize(logging=True)` began."""
    for device, served in _in_use().items():
        if isinstance(served, LoggingResourceAdaptor):
            served.flush()
            set_per_device_resource(device, served.get_upstream())


def get_log_filenames() -> dict[int, str | None]:
    """The log file of each device in use; None where nothing is logged."""
    return {
        device: served.get_file_name() if isinstance(served, LoggingResourceAdaptor) else None
        for device, served in _in_use().items()
    }


def flush_logs() -> None:
    """Bring all rows of all log files to the files."""
    for served in _in_use().values():
        if isinstance(served, LoggingResourceAdaptor):
            served.flush()


def available_device_memory() -> tuple[int, int]:
    """The bytes of the current device that are free, and all of them.

    >>> free, total = available_device_memory()
    >>> 0 < free <= total
    True
    """
    return driver_of(getDevice()).memory_info()


def _in_use() -> dict[int, DeviceMemoryResource]:
    with _lock:
        return {device: served for device, (_, served) in _served.items()}


def _plain() -> DeviceMemoryResource:
    """Plain memory of the current device."""
    return SystemMemoryResource() if driver_of(getDevice()).name == "host" else CudaMemoryResource()


def _on(device: int, make: Callable[[], DeviceMemoryResource]) -> DeviceMemoryResource:
    """What `make` makes while a device is the current one."""
    before = getDevice()
    setDevice(device)
    try:
        return make()
    finally:
        setDevice(before)


def _still_there(driver: Driver) -> bool:
    if driver.name == "host":
        return True
    try:
        return drivers.get(f"{driver.name}:{driver.device}") is driver
    except errors.DriverUnavailable:
        return False


def resource_in_force(served: DeviceMemoryResource) -> mr.DeviceMemoryResource:
    """What a buffer of the current device is made from that names no resource: what `tm.use_resource` put in the place
    of `served` in this thread or task, under the limits in force."""
    driver = served.resource.driver
    here = mr.current.cells()[0].get()
    if here is not None and _is_home(driver, served.resource):
        chosen = here.get((driver.name, driver.device))
        if chosen is not None:
            return chosen
    return mr.limits.apply(served.resource)


def _serve_tensors(driver: Driver, served: DeviceMemoryResource) -> None:
    if _is_home(driver, served.resource):
        mr.set_per_device_resource(driver.device, served.resource)


def _is_home(driver: Driver, resource: mr.DeviceMemoryResource) -> bool:
    """Whether a resource hands out the memory of the driver's own device."""
    home = "main" if driver.name == "host" else f"gpu:{driver.device}"
    return resource.driver is driver and space_of(resource) == home


def _tell(device: int, served: DeviceMemoryResource) -> None:
    with _lock:
        listeners = list(_subscribers)
    for listener in listeners:
        listener(device, served)
