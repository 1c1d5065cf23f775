"""Owns: finding a driver by name, and saying why one is not there.

`host` is always there. The GPU vendors' libraries are opened when somebody asks for them, and never before; what was
opened stays open, and its devices are made known as compute devices.
Must not know: what a driver is used for.
"""

import threading
from typing import NamedTuple

from tensormem import errors, spaces
from tensormem._core import Driver, GpuPlatform, host_driver, open_gpu
from tensormem.config import get_config
from tensormem.drivers import explanations, plugins, simulator

__all__ = ["ProbeResult", "get", "gpu", "host", "probe", "use_platform"]

# The GPU vendors, by the name that their drivers and compute devices have, in the order in which they are asked.
_VENDORS = ("cuda", "rocm")

_ALIASES = {"hip": "rocm"}
_lock = threading.RLock()
_open: dict[str, GpuPlatform] = {}


class ProbeResult(NamedTuple):
    """Whether a driver works here, and if not, why and what to do.

    >>> from tensormem import drivers
    >>> drivers.probe()[0].name, drivers.probe()[0].works
    ('host', True)
    """

    name: str
    works: bool
    reason: str
    advice: str


def host() -> Driver:
    """The driver of main memory; it always works.

    >>> from tensormem import drivers
    >>> drivers.host().name
    'host'
    """
    return host_driver()


def get(name: str) -> Driver:
    """The driver called `name`: "host", "cuda:1" ("cuda" is "cuda:0"), "rocm:0"; or `DriverUnavailable` with why."""
    if name == "host":
        return host()
    vendor, _, number = name.partition(":")
    vendor = _ALIASES.get(vendor, vendor)
    if vendor not in _VENDORS:
        if (brought := plugins.find(name)) is not None:
            return brought
        known = ", ".join(("host", *_VENDORS))
        raise errors.DriverUnavailable(name, f"there is no such driver; known are {known}")
    platform = _platform(vendor)
    device = spaces.ComputeDevice.parse(f"{vendor}:{number or 0}")
    if device.device_id >= len(platform.drivers):
        count = len(platform.drivers)
        raise errors.DriverUnavailable(name, f"the {vendor} driver has {count} devices, numbered from 0")
    return platform.drivers[device.device_id]


def gpu(device: int | str | spaces.LogicalMemorySpace = 0) -> Driver:
    """The driver of a GPU: "cuda:1" by vendor; 1, "gpu:1" or `tm.gpu(1)` of the first vendor that works here."""
    if isinstance(device, str) and not device.startswith("gpu"):
        return get(device)
    space = spaces.gpu(device) if isinstance(device, int) else spaces.LogicalMemorySpace.parse(device)
    if space.kind is not spaces.SpaceKind.GPU:
        raise errors.InvalidArgument(f"{space} is not the memory of a GPU")
    reasons = []
    for vendor in _VENDORS:
        try:
            return get(f"{vendor}:{space.device_id}")
        except errors.DriverUnavailable as refusal:
            reasons.append(f"{vendor}: {refusal.reason}")
    raise errors.DriverUnavailable(str(space), "; ".join(reasons))


def probe() -> list[ProbeResult]:
    """Every known driver, with works or why not. Opens the GPU vendors' libraries where they are."""
    return [ProbeResult("host", True, "main memory is always there", ""), *map(_probe_vendor, _VENDORS)]


def use_platform(vendor: str, platform: GpuPlatform | None) -> GpuPlatform | None:
    """Let `platform` serve `vendor` from now on (None: nothing is open); gives the one that did. For simulations."""
    with _lock:
        before = _open.pop(vendor, None)
        for driver in before.drivers if before is not None else ():
            spaces.unregister_compute_device(f"{vendor}:{driver.device}")
        if platform is not None:
            _open[vendor] = platform
            for driver in platform.drivers:
                spaces.register_compute_device(f"{vendor}:{driver.device}")
            explanations.register(vendor, platform)
        return before


def _platform(vendor: str) -> GpuPlatform:
    with _lock:
        known = _open.get(vendor)
        if known is None:
            known = open_gpu(vendor, _library(vendor))
            use_platform(vendor, known)
        elif known.closed:
            raise errors.DriverUnavailable(
                vendor, "it was opened before this process was forked off; start the process with spawn"
            )
        return known


def _library(vendor: str) -> str:
    """The simulated library where the environment asks for it; otherwise the system's own, by its usual name."""
    return simulator.library_path(vendor) if get_config().simgpu != "off" else ""


def _probe_vendor(vendor: str) -> ProbeResult:
    try:
        platform = _platform(vendor)
    except errors.DriverUnavailable as refusal:
        return ProbeResult(vendor, False, refusal.reason, explanations.advice(refusal.reason))
    names = {driver.device_info()["name"] for driver in platform.drivers}
    kind = "simulated: " if platform.simulated else ""
    count = len(platform.drivers)
    return ProbeResult(vendor, True, f"{kind}{count} device{'s' * (count != 1)} ({', '.join(sorted(names))})", "")
