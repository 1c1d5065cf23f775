"""Owns: the devices that RMM's calls are about: how many there are, which one is current, what they are.

GPUs are those of the first vendor that works here. On a machine without one, device 0 is the host: its memory is main
memory, and its default stream runs inline. The current device is a number of this thread, set by `setDevice`; the CUDA
runtime library is never asked. Must not know: resources, buffers, streams.
"""

import threading
from typing import Any

from tensormem import drivers, errors
from tensormem._core import Driver
from tensormem.interop.library import load

__all__ = [
    "deviceGetName",
    "driverGetVersion",
    "driver_of",
    "getDevice",
    "getDeviceAttribute",
    "getDeviceCount",
    "runtimeGetVersion",
    "setDevice",
]


class _Here(threading.local):
    device = 0


_here = _Here()


def driver_of(device: int) -> Driver:
    """The driver of a GPU; the host's for device 0 of a machine without one."""
    try:
        return drivers.gpu(device)
    except errors.DriverUnavailable:
        if device == 0:
            return drivers.host()
        raise


def getDevice() -> int:
    """The number of this thread's current device.

    >>> getDevice()
    0
    """
    return _here.device


def setDevice(device: int) -> None:
    """Make a device this thread's current one."""
    driver_of(device)
    _here.device = device


def getDeviceCount() -> int:
    """How many devices there are: the GPUs, or 1 for the host.

    >>> getDeviceCount()
    1
    """
    driver = driver_of(0)
    if driver.name == "host":
        return 1
    count = 1
    while True:
        try:
            drivers.get(f"{driver.name}:{count}")
        except errors.DriverUnavailable:
            return count
        count += 1


def deviceGetName(device: int) -> str:
    """The name that the driver has for a device."""
    return driver_of(device).device_info()["name"]


def driverGetVersion() -> int:
    """The version of the CUDA driver, 1000 * major + 10 * minor; 0 where there is none."""
    try:
        answer = _cuda_driver().cuDriverGetVersion()
    except (ModuleNotFoundError, RuntimeError):
        return 0
    return int(_checked("cuDriverGetVersion", answer))


def runtimeGetVersion() -> int:
    """The version of the CUDA runtime library in use: 0, because none is.

    >>> runtimeGetVersion()
    0
    """
    return 0


def getDeviceAttribute(attr: Any, device: int) -> int:
    """A device's attribute by its CUDA number, such as `cuda.bindings.runtime.cudaDeviceAttr` has; 0 on the host."""
    if driver_of(device).name != "cuda":
        return 0
    cuda = _cuda_driver()
    return int(_checked("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute(int(attr)), device)))


def _cuda_driver() -> Any:
    cuda = load("cuda.bindings.driver", "cuda-bindings")
    _checked("cuInit", cuda.cuInit(0))
    return cuda


def _checked(call: str, answer: tuple[Any, ...]) -> Any:
    if int(answer[0]) != 0:
        raise errors.DriverError(int(answer[0]), str(answer[0]), call)
    return answer[1] if len(answer) > 1 else None
