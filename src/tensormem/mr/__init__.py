"""Owns: memory resources as users see them: who hands out blocks and takes them back.

`*MemoryResource` makes memory or cuts it up, `*ResourceAdaptor` wraps an `upstream_mr`.
Must not know: tensors, reports.
"""

from tensormem.mr.current import (
    get_current_device_resource,
    get_per_device_resource,
    set_current_device_resource,
    set_per_device_resource,
    use_resource,
)
from tensormem.mr.profiler import MemoryRecord, ProfilerRecords, memory_stats, profiler
from tensormem.mr.resources import (
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
    "MemoryRecord",
    "PinnedMemoryResource",
    "PoolMemoryResource",
    "PrefetchResourceAdaptor",
    "PressureResourceAdaptor",
    "ProfilerRecords",
    "Statistics",
    "StatisticsResourceAdaptor",
    "get_current_device_resource",
    "get_per_device_resource",
    "memory_stats",
    "profiler",
    "set_current_device_resource",
    "set_per_device_resource",
    "tag",
    "use_resource",
]
