"""Owns: the list of makers of memory. Every test of this folder crosses all of them with one promise.

A maker is whatever gives a user bytes. Adding one is one entry of `MAKERS`. Must not know: what is promised.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

import tensormem as tm
from support.cupy_stand_in import stand_in_for_cupy
from tensormem.gl import why_not as why_no_opengl
from tensormem.memories import Storage, TensorMemory, register_memory, unregister_memory
from tensormem.testing import simulated_gpu

NBYTES = 64 << 10
"""What each maker is asked for."""


@dataclass
class Made:
    """Memory that a maker made: how to look at it, and how to end it."""

    keep: Any
    """What holds the memory: dropping it ends the memory too."""
    close: Callable[[], object]
    charged: int = NBYTES
    """What limits count for it."""
    view: Callable[[], Any] | None = None
    """A view of the bytes for the CPU; None where the CPU cannot touch them."""


@dataclass(frozen=True)
class Maker:
    """One way to make memory without naming a resource."""

    name: str
    make: Callable[[int], Made]
    space: str = "main"
    gpu: str | None = None
    """The vendor of the simulated GPU that it needs."""
    takes_tag: Callable[[int, str], Made] | None = None
    """The same with a tag of its own, where the call has one."""
    needs: Callable[[], str | None] = field(default=lambda: None)
    """Why it cannot run here."""
    has_views: bool = True
    """Whether the CPU has a view of its bytes that it knows of."""
    has_stack: bool = True
    """Whether its caller holds the GIL, without which nobody can look at the Python stack."""
    system_calls: bool = True
    """Whether making it asks the operating system through our driver each time."""

    @contextmanager
    def ready(self) -> Iterator[None]:
        """The machine as it needs it."""
        reason = self.needs()
        if reason is not None:
            pytest.skip(f"{self.name}: {reason}")
        if self.gpu is None:
            yield
            return
        with simulated_gpu(devices=2, memory="256MiB", vendor=self.gpu):
            yield


def of_tensor(tensor: tm.Tensor, charged: int | None = None) -> Made:
    view = (lambda: memoryview(tensor)) if tensor.storage.mappable else None
    return Made(tensor, tensor.close, tensor.nbytes if charged is None else charged, view)


def _resource(mr: tm.mr.DeviceMemoryResource, nbytes: int, tag: str | None = None) -> Made:
    block = mr.allocate(nbytes, tag=tag)
    view = (lambda: memoryview(block)) if mr.is_host_accessible else None
    return Made(block, lambda: None if block.state != "live" else mr.deallocate(block), nbytes, view)


def _pool(nbytes: int, device: str = "main", tag: str | None = None) -> Made:
    pool = tm.VirtualMemoryPool("64MiB", device=device)
    try:
        block = pool.allocate(size=nbytes, tag=tag)
    except BaseException:
        pool.close()
        raise
    view = (lambda: memoryview(block)) if device == "main" else None
    return Made((pool, block), pool.close, pool.physical_memory_usage, view)


def _pool_at_offset(nbytes: int, tag: str | None = None) -> Made:
    pool = tm.VirtualMemoryPool("64MiB")
    try:
        pool.allocate(0, nbytes, tag=tag)
    except BaseException:
        pool.close()
        raise
    return Made(pool, pool.close, pool.physical_memory_usage)


def _suspended(nbytes: int, tag: str | None = None) -> Made:
    """Contents of suspended memory, which a pool keeps in main memory."""
    pool = tm.VirtualMemoryPool("64MiB")
    try:
        block = pool.allocate(size=nbytes, tag=tag)
        pool.suspend(block.tag)
    except BaseException:
        pool.close()
        raise
    return Made((pool, block), pool.close, pool.physical_memory_usage + nbytes)


def _tenant(nbytes: int, tag: str | None = None) -> Made:
    models = tm.TenantPool("1GiB")
    try:
        tenant = models.register("chat", "64MiB")
        block = tenant.pool.allocate(size=nbytes, tag=tag)
    except BaseException:
        models.close()
        raise
    return Made((models, block), models.close, models.physical_memory_usage, lambda: memoryview(block))


def _cache(nbytes: int, tag: str | None = None) -> Made:
    cache = tm.BlockCache("64MiB", block_size=nbytes)
    try:
        ids = cache.allocate(1, tag=tag)
    except BaseException:
        cache.close()
        raise
    return Made(cache, cache.close, cache.physical_memory_usage, lambda: cache.view(ids[0]))


def _buffer(nbytes: int, tag: str | None = None) -> Made:
    buffer = tm.GrowableBuffer("64MiB", tag=tag)
    try:
        buffer.resize(nbytes)
    except BaseException:
        buffer.close()
        raise
    return Made(buffer, buffer.close, buffer.capacity, lambda: memoryview(buffer))


def _elastic(nbytes: int, tag: str | None = None) -> Made:
    mr = tm.mr.ElasticMemoryResource()
    block = mr.allocate(nbytes, tag=tag)

    def close() -> None:
        if block.state == "live":
            mr.deallocate(block)
        mr.trim()

    return Made((mr, block), close, mr.physical_bytes, lambda: memoryview(block))


def _ring(nbytes: int, tag: str | None = None) -> Made:
    ring = tm.FrameRing(2, nbytes // 2, tag=tag)
    control = os.fstat(ring.fds[0]).st_size
    return Made(ring, ring.close, ring.nbytes + control)


def _pages(nbytes: int, device: str = "main") -> Made:
    """Pages by hand, without an address."""
    vmm = tm.VirtualMemoryManager(device)
    size = max(nbytes, vmm.granularity()[0])
    pages = vmm.alloc_physical(size)
    return Made((vmm, pages), pages.close, size)


def _received(nbytes: int) -> Made:
    """What a channel brings: memory of a peer that this process maps. The peer's own is made and dropped outside."""
    here, there = tm.Channel.pair()
    with here, there:
        fd = os.memfd_create("peer", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, nbytes)
        try:
            sent = tm.from_fd(fd, "uint8", nbytes, trust=True)
            here.send(sent)
            got = there.receive(timeout=5)
            sent.close()
        finally:
            os.close(fd)
    return of_tensor(got)


def _imported(nbytes: int) -> Made:
    fd = os.memfd_create("frame", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes)
        return of_tensor(tm.from_fd(fd, "uint8", nbytes, trust=True))
    finally:
        os.close(fd)


def _imported_by_gpu(nbytes: int, where: str) -> Made:
    fd = os.memfd_create("frame", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes)
        return of_tensor(tm.from_external_fd(fd, "uint8", nbytes, space=where))
    finally:
        os.close(fd)


def _image(nbytes: int, memory: str) -> Made:
    frame = tm.image(nbytes // 64, 64, "grey", memory)
    return Made(frame, frame.tensor.close, frame.tensor.storage.nbytes, lambda: memoryview(frame.tensor))


def _users_kind(nbytes: int, tag: str | None = None) -> Made:
    def provider(size: int, space: object, **options: object) -> Storage:
        data = bytearray(size)
        tensor = tm.from_buffer(data)
        return Storage(
            tensor.ptr, size, owner=tensor, space=tm.main, memory=kind, device=(1, 0), driver=tm.drivers.host()
        )

    kind: TensorMemory = register_memory("camera", provider)
    try:
        return of_tensor(tm.empty(nbytes, "uint8", memory=kind, tag=tag))
    finally:
        unregister_memory(kind)


def _numpy(nbytes: int, tag: str | None = None) -> Made:
    import numpy as np

    from tensormem.interop import numpy as hook

    with hook.use(tm.mr.get_current_device_resource(), tag=tag):
        array = np.empty(nbytes, "uint8")
    held = [array]
    return Made(held, held.clear, nbytes)


def _torch(nbytes: int, tag: str | None = None) -> Made:
    """As PyTorch calls its pluggable allocator: by name, for device 1."""
    from tensormem.interop import torch as hook

    library = ctypes.CDLL(hook.allocator_path_and_names()[0])
    library.tensormem_allocate.restype = ctypes.c_void_p
    library.tensormem_allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    library.tensormem_deallocate.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    hook.register(tm.mr.get_current_device_resource("cuda:1"), tag=tag)
    pointer = library.tensormem_allocate(nbytes, 1, None)
    refusal = hook.last_error() if pointer is None else None
    hook.unregister(1)
    if refusal is not None:
        raise refusal
    held = [pointer]
    end = weakref.finalize(finalizable := Finalizable(held), library.tensormem_deallocate, pointer, nbytes, 1, None)
    return Made(finalizable, end, nbytes)


class Finalizable:
    """Holds something, and can be watched."""

    def __init__(self, held: object) -> None:
        self.held = held


def _cupy(nbytes: int, tag: str | None = None) -> Made:
    from tensormem.interop.cupy import allocator

    with stand_in_for_cupy(device=1):
        pointer = allocator(tm.mr.get_current_device_resource("cuda:1"), tag=tag)(nbytes)
    held = [pointer]
    return Made(held, held.clear, nbytes)


def _numba(nbytes: int, tag: str | None = None) -> Made:
    """With Numba's own classes; a stand-in says which device a context is of."""
    from tensormem.interop.numba import memory_manager

    context = SimpleNamespace(device=SimpleNamespace(id=1))
    manager = memory_manager(tm.mr.get_current_device_resource("cuda:1"), tag=tag)(context=context)
    manager.initialize()
    held = [manager.memalloc(nbytes)]
    return Made(held, held.clear, nbytes)


def _rmm_buffer(nbytes: int) -> Made:
    from tensormem import rmm

    held = [rmm.DeviceBuffer(size=nbytes)]
    return Made(held, held.clear, nbytes)


def _why_no_numba() -> str | None:
    return None if find_spec("numba_cuda") or find_spec("numba") else "numba is not installed"


def _tensor(nbytes: int, tag: str | None = None, **options: Any) -> Made:
    return of_tensor(tm.empty(nbytes, "uint8", tag=tag, **options))


def of_dma(nbytes: int, tag: str | None = None) -> Made:
    """A DMA-BUF: crossed in the virtual machine, which has such memory (tests/vm/guest/test_promises.py)."""
    return _tensor(nbytes, tag, memory="dma")


def _far(vendor: str, space: str) -> Callable[[int], Made]:
    return lambda nbytes: _tensor(nbytes, space=space)


MAKERS = [
    Maker("tm.empty", _tensor, takes_tag=_tensor),
    Maker("tm.zeros", lambda n: of_tensor(tm.zeros(n, "uint8"))),
    Maker("tm.full", lambda n: of_tensor(tm.full(n, 7, "uint8"))),
    Maker("Tensor.clone", lambda n: of_tensor(_outside(n).clone())),
    Maker("Tensor.contiguous", lambda n: of_tensor(_outside(n)[::-1].contiguous())),
    Maker(
        "the current resource",
        lambda n: _resource(tm.mr.get_current_device_resource(), n),
        takes_tag=lambda n, tag: _resource(tm.mr.get_current_device_resource(), n, tag),
    ),
    Maker("memory='mem'", lambda n: _tensor(n, memory="mem"), takes_tag=lambda n, tag: _tensor(n, tag, memory="mem")),
    Maker("memory='shm'", lambda n: _tensor(n, memory="shm"), takes_tag=lambda n, tag: _tensor(n, tag, memory="shm")),
    Maker(
        "memory='pbo'",
        lambda n: _tensor(n, memory="pbo"),
        takes_tag=lambda n, tag: _tensor(n, tag, memory="pbo"),
        needs=why_no_opengl,
        system_calls=False,
    ),
    Maker("a kind of a user's", _users_kind, takes_tag=_users_kind, system_calls=False),
    Maker("space='pinned'", lambda n: _tensor(n, space="pinned"), "pinned"),
    Maker("an image", lambda n: _image(n, "mem")),
    Maker("an image in shm", lambda n: _image(n, "shm")),
    Maker("tm.from_fd", _imported),
    Maker("Channel.receive", _received),
    Maker("FrameRing", _ring, takes_tag=_ring, has_views=False),
    Maker("VirtualMemoryPool", _pool, takes_tag=lambda n, tag: _pool(n, tag=tag)),
    Maker("VirtualMemoryPool at an offset", _pool_at_offset, takes_tag=_pool_at_offset, has_views=False),
    Maker("VirtualMemoryPool.suspend", _suspended, takes_tag=_suspended, has_views=False),
    Maker("VirtualMemoryManager.alloc_physical", _pages, has_views=False),
    Maker("TenantPool", _tenant, takes_tag=_tenant),
    Maker("BlockCache", _cache, takes_tag=_cache),
    Maker("GrowableBuffer", _buffer, takes_tag=_buffer),
    Maker("ElasticMemoryResource", _elastic, takes_tag=_elastic),
    Maker("RMM's DeviceBuffer", _rmm_buffer, has_views=False),
    Maker("NumPy's hook", _numpy, takes_tag=_numpy, has_views=False),
    *(
        Maker(name, make, "gpu:1", "cuda", make, needs, has_views=False, has_stack=has_stack, system_calls=False)
        for name, make, needs, has_stack in (
            ("PyTorch's hook", _torch, lambda: None, False),
            ("CuPy's hook", _cupy, lambda: None, True),
            ("Numba's hook", _numba, _why_no_numba, True),
        )
    ),
    *(
        maker
        for vendor in ("cuda", "rocm")
        for maker in (
            Maker(
                f"tm.empty on {vendor}",
                _far(vendor, f"{vendor}:1"),
                "gpu:1",
                vendor,
                has_views=False,
                system_calls=False,
            ),
            Maker(f"managed on {vendor}", _far(vendor, "managed"), "managed", vendor, system_calls=False),
            Maker(f"pinned on {vendor}", _far(vendor, "pinned"), "pinned", vendor, system_calls=False),
            Maker(
                f"VirtualMemoryPool on {vendor}",
                lambda n, where=f"{vendor}:1": _pool(n, where),  # type: ignore[misc]
                "gpu:1",
                vendor,
                has_views=False,
                system_calls=False,
            ),
            Maker(
                f"alloc_physical on {vendor}",
                lambda n, where=f"{vendor}:1": _pages(n, where),  # type: ignore[misc]
                "gpu:1",
                vendor,
                has_views=False,
                system_calls=False,
            ),
            Maker(
                f"tm.from_external_fd on {vendor}",
                lambda n, where=f"{vendor}:1": _imported_by_gpu(n, where),  # type: ignore[misc]
                "gpu:1",
                vendor,
                has_views=False,
                system_calls=False,
            ),
            Maker(
                f"Tensor.to on {vendor}",
                lambda n, where=f"{vendor}:1": of_tensor(_outside(n).to(where).wait()),  # type: ignore[misc]
                "gpu:1",
                vendor,
                has_views=False,
                system_calls=False,
            ),
        )
    ),
]


def _outside(nbytes: int) -> tm.Tensor:
    """A source that no limit counts: memory of somebody else."""
    return tm.from_buffer(bytearray(nbytes), "uint8")


def each(*, but: Callable[[Maker], bool] = lambda maker: False) -> pytest.MarkDecorator:
    """Crosses a test with every maker, but those to which it does not apply."""
    chosen = [maker for maker in MAKERS if not but(maker)]
    return pytest.mark.parametrize("maker", chosen, ids=[maker.name for maker in chosen])
