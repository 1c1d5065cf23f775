"""Owns: the device that is examined, opened in the process of a group: its driver, its facts, and bytes to and from it.

Must not know: any check.
"""

from __future__ import annotations

import ctypes

from tensormem import drivers, mr
from tensormem.drivers import registry
from tensormem.errors import DriverUnavailable
from tensormem.reports.selftest.bare_driver import BareDriver
from tensormem.reports.selftest.promise import NotOffered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem._core import Driver, GpuPlatform, Stream
    from tensormem.reports.selftest.outcome import Measurement

__all__ = ["Subject"]

_VENDORS = ("cuda", "rocm")
_HOST = ("host", "cpu", "main")


class Subject:
    """A device under examination. Its driver is opened so that every call is counted.

    >>> Subject("host").platform is None
    True
    """

    def __init__(self, where: str) -> None:
        for vendor in _VENDORS if where not in _HOST else ():
            _open_counted(vendor)
        self.driver: Driver = _device(where)
        self.platform: GpuPlatform | None = None if self.driver.name == "host" else registry.platform(self.driver.name)
        self.where = "host" if self.platform is None else f"{self.driver.name}:{self.driver.device}"
        self.info = self.driver.device_info()
        self.measurements: list[Measurement] = []
        self._bare: BareDriver | None = None

    @property
    def space(self) -> str:
        """The space of the device's memory."""
        return "main" if self.platform is None else self.where

    @property
    def bare(self) -> BareDriver:
        """The driver's own calls, in a thread where the device is current."""
        if self.platform is None:
            raise NotOffered("the host has no driver library")
        if self._bare is None:
            self._bare = BareDriver(self.driver.name, self.platform.library)
        self._bare.use(self.driver.device)
        return self._bare

    @property
    def other(self) -> Driver:
        """Another device of the same vendor; `NotOffered` when there is none."""
        drivers = self.platform.drivers if self.platform else ()
        others = [each for each in drivers if each.device != self.driver.device]
        if not others:
            raise NotOffered("there is one device only")
        return others[0]

    def can(self, ability: str) -> bool:
        """Whether the device has an ability of `device_info`."""
        return bool(dict(self.info)[ability])

    def leaf(self, driver: Driver | None = None) -> mr.DeviceMemoryResource:
        """A new resource of the device's plain memory."""
        chosen = driver or self.driver
        return mr.HostMemoryResource() if chosen.name == "host" else mr.GpuMemoryResource(chosen)

    def note(self, measurement: Measurement) -> None:
        """Keeps what something takes for the report."""
        self.measurements.append(measurement)

    def close(self) -> None:
        """Lets go of the device: the last calls of its driver."""
        if self.platform is not None:
            self.platform.close()

    def calls(self) -> dict[str, int | None]:
        """How often each function of the driver was called by tensormem."""
        return {} if self.platform is None else self.platform.calls

    def write(self, address: int, data: bytes, stream: Stream | None = None, driver: Driver | None = None) -> None:
        """Puts bytes into memory of the device, and waits."""
        source = ctypes.create_string_buffer(data, len(data))
        (driver or self.driver).copy(address, ctypes.addressof(source), len(data), stream)
        self.wait(stream, driver)

    def read(self, address: int, nbytes: int, stream: Stream | None = None, driver: Driver | None = None) -> bytes:
        """Gets bytes from memory of the device, and waits."""
        target = ctypes.create_string_buffer(nbytes)
        (driver or self.driver).copy(ctypes.addressof(target), address, nbytes, stream)
        self.wait(stream, driver)
        return target.raw

    def wait(self, stream: Stream | None = None, driver: Driver | None = None) -> None:
        """Waits for a stream, the default one unless told."""
        from tensormem.streams import Stream as Queue

        (Queue.default(driver or self.driver) if stream is None else stream).synchronize()


def _open_counted(vendor: str) -> None:
    try:
        registry.use_platform(vendor, registry.open_platform(vendor, count_calls=True))
    except DriverUnavailable:
        return  # the other vendor's may be meant; who asks for this one is told why it is not there


def _device(where: str) -> Driver:
    if where != "auto":
        return drivers.get(where)
    try:
        return drivers.gpu(0)
    except DriverUnavailable:
        return drivers.host()
