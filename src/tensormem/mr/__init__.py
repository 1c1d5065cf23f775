"""Owns: memory resources as users see them: who hands out blocks and takes them back.

`*MemoryResource` makes memory or cuts it up, `*ResourceAdaptor` wraps an `upstream_mr`. Must not know: tensors, reports.
"""

from tensormem._core import (
    AlignedResourceAdaptor,
    BlockId,
    BudgetReservation,
    CallbackMemoryResource,
    DeviceBlock,
    DeviceMemoryResource,
    FailureCallbackResourceAdaptor,
    FaultInjectionResourceAdaptor,
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
    "BlockId",
    "BudgetReservation",
    "CallbackMemoryResource",
    "DeviceBlock",
    "DeviceMemoryResource",
    "FailureCallbackResourceAdaptor",
    "FaultInjectionResourceAdaptor",
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
