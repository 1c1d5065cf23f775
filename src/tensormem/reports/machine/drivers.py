"""Owns: the probes of drivers: the host's, and those of GPU vendors as far as this machine has them.

What tensormem's own registry says about a driver goes first; what it could not open is explained by what this machine
has.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensormem.reports.machine.device_nodes import obstacles
from tensormem.reports.machine.finding import Area, Outcome, degraded, missing, works
from tensormem.reports.machine.probe import Probe, explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers import ProbeResult
    from tensormem.reports.machine.system import System

_NAMED = "_LIBRARY names"  # a variable says which file
_NOT_FOUND = "cannot open shared object file: No such file"
_GPU_CLASSES = ("0x03", "0x12")  # PCI: display controllers, processing accelerators


@dataclass(frozen=True, slots=True)
class _Vendor:
    driver: str
    company: str
    pci_vendor: str
    package: str


_VENDORS = (
    _Vendor("cuda", "NVIDIA", "0x10de", "NVIDIA's driver"),
    _Vendor("rocm", "AMD", "0x1002", "AMD's ROCm runtime"),
)


def probes() -> tuple[Probe, ...]:
    """One probe per driver."""
    return (Probe("host", Area.DRIVER, _host), *(_vendor_probe(vendor) for vendor in _VENDORS))


def _host(system: System) -> Outcome:
    if not system.platform.startswith("linux"):
        return missing(system.platform, "tensormem runs on Linux only", "Use a Linux machine")
    try:
        found = _registered(system, "host")
    except ImportError as error:
        why = f"the compiled core does not load: {explain(error)}"
        return missing("", why, "Install tensormem again", "pip install --force-reinstall tensormem")
    if found is None:
        return missing("", "tensormem does not know it", "Install tensormem again")
    return _from_registry(found)


def _vendor_probe(vendor: _Vendor) -> Probe:
    def ask(system: System) -> Outcome:
        found = _registered(system, vendor.driver)
        if found is None:
            return missing("", "tensormem does not know it", "Install tensormem again")
        return _with_driver(system, found) if found.works else _without_driver(system, vendor, found)

    return Probe(vendor.driver, Area.DRIVER, ask)


def _registered(system: System, name: str) -> ProbeResult | None:
    return next((result for result in system.drivers() if result.name == name), None)


def _from_registry(found: ProbeResult) -> Outcome:
    return works("", found.reason) if found.works else missing("", found.reason, found.advice)


def _with_driver(system: System, found: ProbeResult) -> Outcome:
    file, refused = system.library(found.name)
    others = "".join(f"; not taken: {library} ({why})" for library, why in refused)
    return works("", f"{found.reason}, from {file}{others}")


def _without_driver(system: System, vendor: _Vendor, found: ProbeResult) -> Outcome:
    """Only what somebody asked for, or what the machine has and cannot use, needs attention."""
    gpus = _gpu_count(system, vendor.pci_vendor)
    if _NAMED in found.reason:
        return degraded("", found.reason, found.advice)
    if _NOT_FOUND in found.reason:
        if gpus == 0:
            return missing("", f"{found.reason}; no {vendor.company} GPU is seen either", "Nothing to do here")
        return missing("", f"{found.reason}; {vendor.company} GPUs seen: {gpus}", f"Install {vendor.package}")
    trouble = obstacles(system, vendor.driver)
    if not trouble:
        return missing("", found.reason, found.advice)
    reason = "; ".join([found.reason, *(each.reason for each in trouble)])
    advice = ". ".join(each.advice for each in trouble)
    if gpus == 0:
        return missing("", reason, advice, trouble[0].command)
    return degraded("", f"{reason}; {vendor.company} GPUs seen: {gpus}", advice, trouble[0].command)


def _gpu_count(system: System, pci_vendor: str) -> int:
    devices = "/sys/bus/pci/devices"
    return sum(
        system.text(f"{devices}/{name}/vendor") == pci_vendor
        and system.text(f"{devices}/{name}/class").startswith(_GPU_CLASSES)
        for name in system.names(devices)
    )
