"""Attacks on "life": memory of every kind goes back in stream order, and what is kept goes when it is needed."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tensormem as tm
from support.opengl import needs_opengl
from tensormem import config
from tensormem.memories import Storage, register_memory, unregister_memory
from tensormem.mr.current import measure_everywhere
from tensormem.testing import simulated_gpu


@pytest.fixture
def toy() -> Iterator[None]:
    def provider(nbytes: int, space: object, *, stream: object = None, **options: object) -> Storage:
        memory = ctypes.create_string_buffer(nbytes)
        return Storage(ctypes.addressof(memory), nbytes, owner=memory, space=tm.main, memory=kind, device=(1, 0))

    kind: Any = register_memory("toy", provider)
    yield
    unregister_memory(kind)


@pytest.mark.usefixtures("toy")
@needs_opengl
@pytest.mark.parametrize("kind", ["shm", "pbo", "toy"])
def test_memory_of_a_kind_goes_back_after_the_work_of_its_stream(kind: str) -> None:
    gate = threading.Event()
    with tm.Stream(tm.drivers.host()) as stream:
        tensor = tm.empty(4096, "uint8", memory=kind, stream=stream)
        block: Any = tensor.storage.block
        assert block.alloc_stream == stream.id
        stream.launch(gate.wait)
        tensor.close()
        del tensor
        block.mr.reap_pending()
        assert block.state == "retired"
        gate.set()
        stream.synchronize()
        block.mr.reap_pending()
        assert block.state == "freed"


@pytest.mark.parametrize("kind", ["shm"])
def test_a_stream_of_nobody_is_refused_for_memory_of_a_kind(kind: str) -> None:
    stream = tm.Stream(tm.drivers.host())
    stream.close()
    before = tm.memory_stats()["charged_bytes"]
    with pytest.raises(tm.errors.StreamMisuse):
        tm.empty(4096, "uint8", memory=kind, stream=stream)
    assert tm.memory_stats()["charged_bytes"] == before


@pytest.mark.parametrize("alignment", [0, 3, -1])
def test_an_alignment_that_is_none_is_refused_for_memory_of_a_kind(alignment: int) -> None:
    with pytest.raises(tm.errors.InvalidAlignment):
        tm.empty(4096, "uint8", memory="shm", alignment=alignment)


@pytest.mark.parametrize("vendor", ["cuda", "rocm"])
def test_what_a_gpu_imported_follows_the_streams_of_that_gpu(vendor: str) -> None:
    fd = os.memfd_create("frame")
    os.ftruncate(fd, 4096)
    gate = threading.Event()
    with simulated_gpu(devices=2, memory="64MiB", vendor=vendor) as gpu:
        frame = tm.from_external_fd(fd, "uint8", 4096, space=f"{vendor}:1", tag="camera")
        block: Any = frame.storage.block
        assert (block.mr.driver.name, block.device_ordinal, block.tag) == (gpu.drivers[1].name, 1, "camera")
        with tm.Stream(gpu.drivers[1]) as stream:
            stream.launch(gate.wait)
            block.mr.record_block_use(block, stream)
            frame.close()
            block.mr.reap_pending()
            assert block.state == "retired" and gpu.report()["external_memories"] == 1
            gate.set()
            stream.synchronize()
            tm.streams.Stream.default(gpu.drivers[1]).synchronize()
            block.mr.reap_pending()
        assert block.state == "freed" and gpu.report()["external_memories"] == 0
        del frame, block
    os.close(fd)


def _alone(script: str) -> None:
    """In a process of its own, whose limits are its own."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=120)


def test_kept_shared_memory_goes_before_descriptors_are_short() -> None:
    _alone("""
        import os, resource
        import tensormem as tm
        kept = [tm.empty(4096 * n, "uint8", memory="shm") for n in range(1, 9)]
        for tensor in kept:
            tensor.close()
        assert tm.mr.get_kind_resource("shm").idle_bytes > 0
        probe = os.dup(0)
        os.close(probe)
        resource.setrlimit(resource.RLIMIT_NOFILE, (probe, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        tensor = tm.empty(4096 * 100, "uint8", memory="shm")
        assert tm.mr.get_kind_resource("shm").idle_bytes == 0
    """)


def test_kept_shared_memory_goes_before_addresses_are_short() -> None:
    _alone("""
        import resource
        import tensormem as tm
        tm.zeros(256 << 20, "uint8", memory="shm").close()
        tm.empty(16).close()
        shm = tm.mr.get_kind_resource("shm")
        assert shm.idle_bytes >= 0
        size = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))
        large = tm.empty(192 << 20, "uint8")
        large.close()
        shared = tm.empty(160 << 20, "uint8", memory="shm")
    """)


def test_trim_reaches_kept_shared_memory_under_trackers_and_limits() -> None:
    tm.mr.trim()
    with measure_everywhere(tm.limit(), stacks=True):
        tm.zeros(256 << 10, "uint8", memory="shm").fill_(1).close()
        assert tm.mr.trim() >= 256 << 10
    assert tm.mr.SharedMemoryResource().idle_bytes == 0


def test_a_refusal_of_pytorchs_hook_is_one_error_with_one_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensormem.interop import torch as hook

    dump = tmp_path / "oom.json"
    monkeypatch.setenv("TENSORMEM_OOM_DUMP", str(dump))
    monkeypatch.setattr(config, "_current", {})
    library = ctypes.CDLL(hook.allocator_path_and_names()[0])
    library.tensormem_allocate.restype = ctypes.c_void_p
    library.tensormem_allocate.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    with simulated_gpu(devices=1, memory="64MiB"):
        mr = tm.mr.LimitingResourceAdaptor(tm.mr.GpuMemoryResource("cuda:0"), "1MiB")
        hook.register(mr, tag="torch")
        try:
            for nbytes in (2 << 20, 3 << 20):
                assert library.tensormem_allocate(nbytes, 0, None) is None
                first = hook.last_error()
                assert isinstance(first, tm.errors.OutOfBudget)
                assert json.loads(dump.read_text())["requested"] == nbytes
                dump.unlink()
                assert hook.last_error() is first and not dump.exists()
        finally:
            hook.unregister(0)


def test_a_pool_cannot_serve_a_kind_and_says_so_before_it_is_asked() -> None:
    before = tm.mr.get_kind_resource("shm")
    leaf = tm.mr.SharedMemoryResource()
    for pool in (tm.mr.PoolMemoryResource(leaf), tm.mr.StatisticsResourceAdaptor(tm.mr.PoolMemoryResource(leaf))):
        with pytest.raises(tm.errors.MemoryUnavailable, match="parts of larger memory"):
            tm.mr.set_kind_resource("shm", pool)
        with pytest.raises(tm.errors.MemoryUnavailable, match="parts of larger memory"):
            tm.empty(4096, "uint8", memory="shm", mr=pool)
        assert pool.bytes_outstanding == 0
    assert tm.mr.get_kind_resource("shm") is before


@needs_opengl
@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("kind", ["shm", "pbo", "toy"])
def test_a_fill_on_a_stream_comes_after_what_the_stream_was_given(kind: str) -> None:
    """Where an owner is told of accesses it is waited for; it is never done out of order."""
    tensor = tm.zeros(4096, "uint8", memory=kind)
    done: list[str] = []
    with tm.Stream(tm.drivers.host()) as stream:
        stream.launch(done.append, "before")
        tensor.fill_(7, stream=stream)
        stream.synchronize()
    assert done == ["before"] and tensor.tolist() == [7] * 4096
    tensor.close()


def test_copies_and_fills_of_shared_memory_on_a_stream_do_not_wait_for_it() -> None:
    gate = threading.Event()
    source = tm.full(4096, 5, "uint8", memory="shm")
    with tm.Stream(tm.drivers.host()) as stream:
        stream.launch(gate.wait)
        copied, filled = tm.zeros(4096, "uint8", memory="shm"), tm.zeros(4096, "uint8", memory="shm")
        copied.copy_(source, stream=stream)  # would wait for ever: nobody else opens the gate
        filled.fill_(6, stream=stream)
        assert not copied.ready and not filled.ready
        source.close()  # the stream keeps it
        gate.set()
        stream.synchronize()
        assert copied.tolist() == [5] * 4096 and filled.tolist() == [6] * 4096
