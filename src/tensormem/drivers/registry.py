"""Owns: which devices' drivers are open, and why one cannot be.

`host` is always there. The GPU vendors' libraries are opened when somebody asks for them, and never before; what was
opened stays open, and its devices are made known as compute devices.
Must not know: what a driver is used for.
"""

import threading
from typing import NamedTuple

from tensormem import errors, spaces
from tensormem._core import Driver, GpuPlatform, forget_destinations, host_driver, open_gpu
from tensormem.config import get_config
from tensormem.drivers import explanations, libraries, plugins, simulator

__all__ = [
    "ProbeResult",
    "describe_machine",
    "device",
    "first_device",
    "host",
    "open_platform",
    "platform",
    "probe",
    "refusals",
    "use_platform",
]

# The GPU vendors, by the name that their drivers and compute devices have, in the order in which they are asked.
_VENDORS = ("cuda", "rocm")

_lock = threading.RLock()
_open: dict[str, GpuPlatform] = {}
_asked: set[str] = set()
_refused: dict[str, tuple[libraries.Refusal, ...]] = {}


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


def device(vendor: str, number: int) -> Driver:
    """The driver of a vendor's device, opened if it is not yet; `DriverUnavailable` with why."""
    if vendor not in _VENDORS:
        raise errors.DriverUnavailable(vendor, "it was brought by another package, and opens no devices by number")
    found = platform(vendor).drivers
    if number >= len(found):
        raise errors.DriverUnavailable(
            f"{vendor}:{number}", f"the {vendor} driver has {len(found)} devices, numbered from 0"
        )
    return found[number]


def first_device(number: int) -> Driver:
    """The driver of this device of the first vendor that works and has it."""
    reasons = []
    for vendor in _VENDORS:
        try:
            return device(vendor, number)
        except errors.DriverUnavailable as refusal:
            reasons.append(f"{vendor}: {refusal.reason}")
    raise errors.DriverUnavailable(f"gpu:{number}", "; ".join(reasons))


def describe_machine() -> str:
    """The places that are known to be here, for refusals: opens nothing, and says what was not looked at yet."""
    with _lock:
        opened = {vendor: len(each.drivers) for vendor, each in _open.items() if not each.closed}
        unasked = [vendor for vendor in _VENDORS if vendor not in _asked and vendor not in _open]
    gpus = [f"gpu:{number} ({vendor})" for vendor in _VENDORS for number in range(opened.get(vendor, 0))]
    places = ", ".join(["main", "pinned", *gpus, *plugins.opened()])
    return f"{places} ({' and '.join(unasked)} not looked for yet)" if unasked else places


def probe() -> list[ProbeResult]:
    """Every known driver, with works or why not. Opens the GPU vendors' libraries where they are."""
    return [ProbeResult("host", True, "main memory is always there", ""), *map(_probe_vendor, _VENDORS)]


def use_platform(vendor: str, served: GpuPlatform | None) -> GpuPlatform | None:
    """Let a platform serve `vendor` from now on (None: nothing is open); gives the one that did. For simulations."""
    with _lock:
        before = _open.pop(vendor, None)
        for driver in before.drivers if before is not None else ():
            spaces.unregister_compute_device(f"{vendor}:{driver.device}")
        if served is not None:
            _open[vendor] = served
            for driver in served.drivers:
                spaces.register_compute_device(f"{vendor}:{driver.device}")
            explanations.register(vendor, served)
        forget_destinations()
        return before


def platform(vendor: str) -> GpuPlatform:
    """A vendor's opened driver, opened if it is not yet; `DriverUnavailable` with why."""
    with _lock:
        known = _open.get(vendor)
        _asked.add(vendor)
        if known is None:
            known = open_platform(vendor)
            use_platform(vendor, known)
        elif known.closed:
            raise errors.DriverUnavailable(
                vendor, "it was opened before this process was forked off; start the process with spawn"
            )
        return known


def open_platform(vendor: str, *, count_calls: bool = False) -> GpuPlatform:
    """A vendor's driver, opened anew from the first library that serves; `DriverUnavailable` with why none does."""
    refused: list[libraries.Refusal] = []
    _refused[vendor] = ()
    for candidate in _candidates(vendor):
        why = libraries.flaw(candidate.library)
        try:
            if not why:
                return open_gpu(vendor, candidate.library, count_calls=count_calls)
        except errors.DriverUnavailable as refusal:
            why = refusal.reason
        if candidate.origin in libraries.VARIABLES.values():
            why = f"{candidate.origin} names {candidate.library}, but {why}"
        refused.append(libraries.Refusal(candidate.library, why))
        _refused[vendor] = tuple(refused)
        if not libraries.is_about_the_file(why):
            raise errors.DriverUnavailable(vendor, why)
    raise errors.DriverUnavailable(vendor, libraries.explain(refused))


def refusals(vendor: str) -> tuple[libraries.Refusal, ...]:
    """The libraries that were not taken when the vendor's was last looked for, each with why."""
    return _refused.get(vendor, ())


def _candidates(vendor: str) -> list[libraries.Candidate]:
    """The file that a variable names; the simulated library where the environment asks for it; or where it may be."""
    if get_config().simgpu != "off" and not libraries.named(vendor):
        return [libraries.Candidate(simulator.library_path(vendor), "TENSORMEM_SIMGPU")]
    return libraries.candidates(vendor)


def _probe_vendor(vendor: str) -> ProbeResult:
    try:
        opened = platform(vendor)
    except errors.DriverUnavailable as refusal:
        return ProbeResult(vendor, False, refusal.reason, explanations.advice(refusal.reason))
    names = {driver.device_info()["name"] for driver in opened.drivers}
    kind = "simulated: " if opened.simulated else ""
    count = len(opened.drivers)
    return ProbeResult(vendor, True, f"{kind}{count} device{'s' * (count != 1)} ({', '.join(sorted(names))})", "")
