"""Owns: the names under which RMM's own code finds its resources. Must not know: anything of its own."""

from tensormem.public_functions import explain_misspellings
from tensormem.rmm.pylibrmm.memory_resource.adaptors import (
    FailureCallbackResourceAdaptor,
    LimitingResourceAdaptor,
    LoggingResourceAdaptor,
    PrefetchResourceAdaptor,
    StatisticsResourceAdaptor,
    TrackingResourceAdaptor,
)
from tensormem.rmm.pylibrmm.memory_resource.callback_memory_resource import CallbackMemoryResource
from tensormem.rmm.pylibrmm.memory_resource.device_memory_resource import DeviceMemoryResource
from tensormem.rmm.pylibrmm.memory_resource.leaves import (
    CudaAsyncMemoryResource,
    CudaMemoryResource,
    ManagedMemoryResource,
    PinnedHostMemoryResource,
    SystemMemoryResource,
)
from tensormem.rmm.pylibrmm.memory_resource.per_device import (
    available_device_memory,
    disable_logging,
    enable_logging,
    get_current_device_resource,
    get_log_filenames,
    get_per_device_resource,
    is_initialized,
    set_current_device_resource,
    set_per_device_resource,
)
from tensormem.rmm.pylibrmm.memory_resource.per_device import flush_logs as _flush_logs  # noqa: F401 - RMM's tests
from tensormem.rmm.pylibrmm.memory_resource.per_device import initialize as _initialize  # noqa: F401 - and its code
from tensormem.rmm.pylibrmm.memory_resource.suballocators import (
    ArenaMemoryResource,
    BinningMemoryResource,
    FixedSizeMemoryResource,
    PoolMemoryResource,
)
from tensormem.rmm.pylibrmm.memory_resource.upstream_resource_adaptor import UpstreamResourceAdaptor

__all__ = [
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "CallbackMemoryResource",
    "CudaAsyncMemoryResource",
    "CudaMemoryResource",
    "DeviceMemoryResource",
    "FailureCallbackResourceAdaptor",
    "FixedSizeMemoryResource",
    "LimitingResourceAdaptor",
    "LoggingResourceAdaptor",
    "ManagedMemoryResource",
    "PinnedHostMemoryResource",
    "PoolMemoryResource",
    "PrefetchResourceAdaptor",
    "StatisticsResourceAdaptor",
    "SystemMemoryResource",
    "TrackingResourceAdaptor",
    "UpstreamResourceAdaptor",
    "available_device_memory",
    "disable_logging",
    "enable_logging",
    "get_current_device_resource",
    "get_log_filenames",
    "get_per_device_resource",
    "is_initialized",
    "set_current_device_resource",
    "set_per_device_resource",
]

explain_misspellings(globals())
