"""Owns: what is known about the machine, the driver and the device before anything is checked.

Must not know: any check.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

from tensormem.drivers import registry
from tensormem.reports.machine import device_nodes
from tensormem.reports.machine.system import System
from tensormem.reports.selftest.subject import Subject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["collect", "of_the_machine"]

_KERNEL_MODULES = {"cuda": "/proc/driver/nvidia/version", "rocm": "/sys/module/amdgpu/version"}


def of_the_machine() -> dict[str, Any]:
    """What can be told without opening any driver."""
    system = System()
    return {
        "tensormem": version("tensormem"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "container": device_nodes.container(system),
        "device_nodes": [node for vendor in device_nodes.NODES for node in device_nodes.nodes(system, vendor)],
        "variables": {
            name: value
            for vendor in device_nodes.NODES
            for name, value in device_nodes.hiding_variables(system, vendor).items()
        }
        | {name: value for name, value in sorted(os.environ.items()) if name.startswith("TENSORMEM_")},
    }


def collect(where: str) -> dict[str, Any]:
    """What a device and its driver say of themselves; opens the driver."""
    subject = Subject(where)
    found: dict[str, Any] = {"where": subject.where, "device": dict(subject.info)}
    opened = subject.platform
    if opened is not None:
        found["driver"] = {
            "vendor": opened.vendor,
            "version": opened.version,
            "version_text": version_text(opened.vendor, opened.version),
            "library": opened.library,
            "simulated": opened.simulated,
            "kernel_module": _kernel_module(opened.vendor),
            "not_taken": [[each.library, each.why] for each in registry.refusals(opened.vendor)],
            "functions": sorted(name for name, count in opened.calls.items() if count is not None),
            "functions_missing": sorted(name for name, count in opened.calls.items() if count is None),
        }
        found["devices"] = [each.device_info()["name"] for each in opened.drivers]
        found["attributes"] = opened.attributes(subject.driver.device)
    found["memory"] = dict(zip(("free_bytes", "total_bytes"), subject.driver.memory_info(), strict=True))
    return found


def version_text(vendor: str, number: int) -> str:
    """A driver's version as its vendor writes it.

    >>> version_text("cuda", 12040), version_text("rocm", 70151831)
    ('12.4', '7.1.51831')
    """
    if vendor == "cuda":
        return f"{number // 1000}.{number % 1000 // 10}"
    return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"


def _kernel_module(vendor: str) -> str:
    try:
        return System().text(_KERNEL_MODULES[vendor]).partition("\n")[0]
    except OSError:
        return ""
