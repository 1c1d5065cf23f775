"""Owns: the names of the resources and adaptors, and of what they hand out.

The code is in the compiled core. Must not know: which of them is current.
"""

from tensormem._core import (
    AlignedResourceAdaptor,
    ArenaMemoryResource,
    BinningMemoryResource,
    BlockId,
    BudgetReservation,
    CallbackMemoryResource,
    DeviceBlock,
    DeviceMemoryResource,
    FailureCallbackResourceAdaptor,
    FaultInjectionResourceAdaptor,
    FixedSizeMemoryResource,
    HostMemoryResource,
    LaunchRecorder,
    LimitingResourceAdaptor,
    PinnedMemoryResource,
    PoolMemoryResource,
    PrefetchResourceAdaptor,
    PressureResourceAdaptor,
    Statistics,
    StatisticsResourceAdaptor,
    tag,
)

__all__ = [
    "AlignedResourceAdaptor",
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "BlockId",
    "BudgetReservation",
    "CallbackMemoryResource",
    "DeviceBlock",
    "DeviceMemoryResource",
    "FailureCallbackResourceAdaptor",
    "FaultInjectionResourceAdaptor",
    "FixedSizeMemoryResource",
    "HostMemoryResource",
    "LaunchRecorder",
    "LimitingResourceAdaptor",
    "PinnedMemoryResource",
    "PoolMemoryResource",
    "PrefetchResourceAdaptor",
    "PressureResourceAdaptor",
    "Statistics",
    "StatisticsResourceAdaptor",
    "tag",
]
