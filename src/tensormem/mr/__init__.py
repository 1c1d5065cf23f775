"""Owns: memory resources as users see them: who hands out blocks and takes them back.

Must not know: tensors, reports.
"""

from tensormem._core import BlockId, DeviceBlock, DeviceMemoryResource, HostMemoryResource

__all__ = ["BlockId", "DeviceBlock", "DeviceMemoryResource", "HostMemoryResource"]
