"""Owns: virtual memory as users see it: reserve addresses, make pages, map, unmap, set access, share, move.

Must not know: pools and tensors.
"""

from tensormem._core import AccessFlags, GrowableBuffer, Mapping, PhysicalAllocation, VirtualAddressRange
from tensormem.public_functions import explain_misspellings
from tensormem.vmm.manager import VirtualMemoryManager
from tensormem.vmm.sharing import receive_physical, send_physical

__all__ = [
    "AccessFlags",
    "GrowableBuffer",
    "Mapping",
    "PhysicalAllocation",
    "VirtualAddressRange",
    "VirtualMemoryManager",
    "receive_physical",
    "send_physical",
]

explain_misspellings(globals())
