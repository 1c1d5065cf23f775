"""Owns: how each owner is constructed, by class: the arguments that it needs on any machine."""

from collections.abc import Callable
from typing import Any

import tensormem as tm
import tensormem._core as core
from tensormem import mr, pools

__all__ = ["HOST", "Arguments", "call_with", "heap"]

# How to construct each, by class: positional and keyword arguments.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def call_with(*args: Any, **kwargs: Any) -> Arguments:
    return args, kwargs


class _Plan:
    lifetimes: tuple[Any, ...] = ()
    offsets: tuple[int, ...] = ()
    height = 256
    alignment = 256


def heap() -> mr.HostMemoryResource:
    return mr.HostMemoryResource()


HOST: dict[type, Callable[[], Arguments]] = {
    core.AbstractMemoryResource: call_with,
    core.AllocationLimit: lambda: call_with("1MiB"),
    core.AlignedResourceAdaptor: lambda: call_with(heap()),
    core.ArenaMemoryResource: lambda: call_with(heap()),
    core.BinningMemoryResource: lambda: call_with(heap()),
    core.BlockCache: lambda: call_with(tm.drivers.host(), 0, "4MiB", "64KiB", "2MiB"),
    core.BlockTables: lambda: call_with(pools.BlockCache("4MiB", "64KiB")),
    core.CallbackMemoryResource: lambda: call_with(lambda *a: 0, lambda *a: None),
    core.DebugGuardResourceAdaptor: lambda: call_with(heap()),
    core.ElasticMemoryResource: call_with,
    core.Event: lambda: call_with(tm.drivers.host()),
    core.FailureCallbackResourceAdaptor: lambda: call_with(heap(), lambda n: False),
    core.FaultInjectionResourceAdaptor: lambda: call_with(heap(), nth=3),
    core.FixedSizeMemoryResource: lambda: call_with(heap()),
    core.GrowableBuffer: lambda: call_with("1MiB"),
    core.HostMemoryResource: call_with,
    core.LimitingResourceAdaptor: lambda: call_with(heap(), "1MiB"),
    core.LoggingResourceAdaptor: lambda: call_with(heap()),
    core.MemorySink: call_with,
    core.NumpyAllocator: lambda: call_with(heap()),
    core.PhysicalLimit: lambda: call_with("1MiB"),
    core.PinnedMemoryResource: call_with,
    core.PixelBufferResource: call_with,
    core.PlannedMemoryResource: lambda: call_with(_Plan(), heap()),
    core.PoolMemoryResource: lambda: call_with(heap()),
    core.PrefetchResourceAdaptor: lambda: call_with(heap()),
    core.PressureResourceAdaptor: lambda: call_with(heap(), print, warn=1, critical=2),
    core.RingReader: lambda: call_with(core.RingFile.create(2, 4, "uint8", "drop", "latest"), "latest"),
    core.RingSink: call_with,
    core.RingWriter: lambda: call_with(core.RingFile.create(2, 4, "uint8", "drop", "latest")),
    core.SharedMemoryResource: call_with,
    core.StatisticsResourceAdaptor: lambda: call_with(heap()),
    core.Storage: lambda: call_with(4096, 0, owner=None, space=tm.main, memory="mem", device=(1, 0)),
    core.Stream: lambda: call_with(tm.drivers.host()),
    core.TenantBudgets: lambda: call_with("1MiB"),
    core.Tensor: lambda: call_with(tm.zeros(4).storage, "float32", 4),
    core.TrackingResourceAdaptor: lambda: call_with(heap()),
    core.TransferReport: lambda: call_with(0, "cpu", "", "main", "main"),
    core.VirtualMemoryManager: lambda: call_with(tm.drivers.host()),
    core.VirtualMemoryPool: lambda: call_with(tm.drivers.host(), 0, "4MiB", "2MiB"),
    core.tag: lambda: call_with("kv"),
    pools.BlockCache: lambda: call_with("4MiB", "64KiB"),
    pools.BlockTables: lambda: call_with(pools.BlockCache("4MiB", "64KiB")),
    pools.Defragmenter: lambda: call_with(pools.BlockCache("4MiB", "64KiB")),
    pools.TenantPool: lambda: call_with("4MiB"),
    pools.VirtualMemoryPool: lambda: call_with("4MiB"),
    tm.FrameRing: lambda: call_with(2, 4),
    tm.Image: lambda: call_with(tm.zeros(64, "uint8"), 4, 4, "grey"),
    tm.vmm.VirtualMemoryManager: call_with,
    mr.limit: lambda: call_with("1MiB"),
    mr.profiler: call_with,
    mr.ProfilerRecords: call_with,
}
