"""Owns: which drivers there are, and why one is not.

A driver is the only code that touches an operating system or device API. Must not know: what the memory is used for.
"""

from tensormem.drivers.plugins import driver_from_capsule, register_driver, unregister_driver
from tensormem.drivers.registry import ProbeResult, get, gpu, host, probe

__all__ = [
    "ProbeResult",
    "driver_from_capsule",
    "get",
    "gpu",
    "host",
    "probe",
    "register_driver",
    "unregister_driver",
]
