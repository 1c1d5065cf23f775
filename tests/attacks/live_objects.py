"""Owns: live objects of every kind, made anew for each case. Must not know: what is done to them."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensormem as tm
from support.constructions import HOST
from tensormem import _core as core
from tensormem import mr, pools, streams, vmm
from tensormem.trace.recording import Recording

__all__ = ["MAKERS", "new_path"]

_serial = itertools.count()


def new_path(suffix: str = "") -> Path:
    """A path that nothing has yet, in the directory of the batch."""
    return Path(f"file-{os.getpid()}-{next(_serial)}{suffix}")


def _heap_block() -> mr.DeviceBlock:
    return mr.HostMemoryResource().allocate(4096, tag="attack")


def _pool_block() -> mr.DeviceBlock:
    return mr.PoolMemoryResource(mr.HostMemoryResource()).allocate(1000)


def _freed_block() -> mr.DeviceBlock:
    resource = mr.PoolMemoryResource(mr.HostMemoryResource())
    block = resource.allocate(1000)
    resource.deallocate(block)
    return block


def _mapped() -> tuple[vmm.VirtualMemoryManager, vmm.VirtualAddressRange, vmm.PhysicalAllocation]:
    manager = vmm.VirtualMemoryManager()
    size = max(manager.granularity())
    place, pages = manager.reserve(4 * size, size), manager.alloc_physical(size)
    manager.map(place, pages, 0)
    return manager, place, pages


def _mapping() -> Any:
    manager, place, _ = _mapped()
    return manager.mappings(place)[0]


def _written_ring() -> tm.FrameRing:
    ring = tm.FrameRing(3, 64)
    with ring.write(timeout=1):
        pass
    return ring


def _lifetimes_trace() -> Any:
    path = new_path(".csv")
    path.write_text("id,lower,upper,size\na,0,4,16\nb,2,6,8\n")
    return tm.trace.open(path)


def _recorded_trace() -> Any:
    path = new_path(".tmt")
    leaf = mr.HostMemoryResource()
    with tm.trace(path):
        leaf.deallocate(leaf.allocate(64))
    return tm.trace.open(path)


def _plan() -> Any:
    return tm.trace.plan(_lifetimes_trace().lifetimes())


def _tenant() -> Any:
    return pools.TenantPool("8MiB").register("a", "4MiB")


def _closed(maker: Callable[[], Any]) -> Callable[[], Any]:
    def make() -> Any:
        made = maker()
        made.close()
        return made

    return make


def _reservation() -> Any:
    return mr.LimitingResourceAdaptor(mr.HostMemoryResource(), "1MiB").reserve(4096)


def _pool_block_of_pages() -> Any:
    return pools.VirtualMemoryPool("8MiB").allocate(size="2MiB")


def _shared_budget() -> Any:
    return pools.SharedBudget.create("1MiB", name="attack", patience=0.01)


def _sub_byte() -> Any:
    return tm.zeros(16, "int4")


_BY_HAND: dict[str, Callable[[], Any]] = {
    "block": _heap_block,
    "block of a pool": _pool_block,
    "freed block": _freed_block,
    "tensor": lambda: tm.full((3, 4), 7, "int32"),
    "tensor, shared": lambda: tm.full((3, 4), 7, "uint8", memory="shm"),
    "tensor, view": lambda: tm.full((8, 8), 1)[1:, ::-2],
    "tensor, read-only": lambda: tm.zeros(4).as_readonly(),
    "tensor, empty": lambda: tm.zeros((0, 3)),
    "tensor, sub-byte": _sub_byte,
    "tensor, closed": _closed(lambda: tm.zeros(4)),
    "storage": lambda: tm.zeros(4).storage,
    "storage, shared": lambda: tm.zeros(4, memory="shm").storage,
    "map": lambda: tm.zeros(4).map("rw"),
    "image": lambda: tm.image(8, 8, "nv12"),
    "stream": lambda: streams.Stream(tm.drivers.host()),
    "default stream": streams.default_stream,
    "closed stream": _closed(lambda: streams.Stream(tm.drivers.host())),
    "event": lambda: streams.Event(tm.drivers.host()),
    "manager": vmm.VirtualMemoryManager,
    "manager, mapped": lambda: _mapped()[0],
    "range": lambda: _mapped()[1],
    "physical": lambda: _mapped()[2],
    "mapping": _mapping,
    "buffer that grows": lambda: vmm.GrowableBuffer("1MiB"),
    "pool of pages": lambda: pools.VirtualMemoryPool("8MiB"),
    "block of a pool of pages": _pool_block_of_pages,
    "closed pool of pages": _closed(lambda: pools.VirtualMemoryPool("8MiB")),
    "block cache": lambda: pools.BlockCache("4MiB", "64KiB"),
    "tenant pool": lambda: pools.TenantPool("8MiB"),
    "tenant": _tenant,
    "shared budget": _shared_budget,
    "closed shared budget": _closed(_shared_budget),
    "reservation": _reservation,
    "ring": lambda: tm.FrameRing(3, 64),
    "ring, written": _written_ring,
    "frame": lambda: _written_ring().read(timeout=1),
    "writable frame": lambda: tm.FrameRing(3, 64).write(timeout=1),
    "closed ring": _closed(lambda: tm.FrameRing(3, 64)),
    "channel": lambda: tm.Channel.pair()[0],
    "channel listener": lambda: tm.Channel.listen(f"@{os.getpid()}-{next(_serial)}"),
    "recording": lambda: Recording(new_path(".tmt")),
    "trace": _recorded_trace,
    "trace of lifetimes": _lifetimes_trace,
    "plan": _plan,
    "space": lambda: tm.main,
    "device": lambda: tm.ComputeDevice("cpu"),
    "dtype": lambda: tm.dtype("float32"),
    "driver": tm.drivers.host,
    "snapshot": lambda: __import__("tensormem.reports.live", fromlist=["take_snapshot"]).take_snapshot(),
    "temporary file": lambda: tempfile.TemporaryFile(dir="."),  # noqa: SIM115
}


def _constructed(cls: Any) -> Callable[[], Any]:
    def make() -> Any:
        args, kwargs = HOST[cls]()
        return cls(*args, **kwargs)

    return make


# The callbacks of one would be called with addresses that a case made up.
_TAKES_ADDRESSES = (core.CallbackMemoryResource, core.Storage, core.NumpyAllocator)
MAKERS: dict[str, Callable[[], Any]] = _BY_HAND | {
    cls.__name__: _constructed(cls) for cls in HOST if cls not in _TAKES_ADDRESSES
}
