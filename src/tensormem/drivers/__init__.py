"""Owns: which drivers there are, why one is not, and what is meant by a "where".

A driver is the only code that touches an operating system or device API. Must not know: what the memory is used for.
"""

from tensormem import spaces
from tensormem.drivers.plugins import driver_from_capsule, register_driver, unregister_driver
from tensormem.drivers.registry import ProbeResult, host, probe
from tensormem.drivers.where import COMPUTING, GPUS, Where, get, gpu, resolve
from tensormem.public_functions import explain_misspellings

__all__ = [
    "COMPUTING",
    "GPUS",
    "ProbeResult",
    "Where",
    "driver_from_capsule",
    "get",
    "gpu",
    "host",
    "probe",
    "register_driver",
    "resolve",
    "unregister_driver",
]

explain_misspellings(vars(spaces))  # which do without compiled modules, and cannot do it themselves
explain_misspellings(globals())
