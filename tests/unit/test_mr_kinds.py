"""Kinds of memory are leaves of the resource stack: they are limited, tracked, counted and traced like the rest."""

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tensormem as tm
from support.opengl import needs_opengl
from tensormem import errors
from tensormem.memories import Storage, allocate, register_memory, unregister_memory
from tensormem.memories import dma as dma_memory

# DMA-BUFs where this machine has them; tests/vm asks the same of them in a virtual machine that does.
HAS_DMA = dma_memory.why_not() is None
KINDS = [
    pytest.param("shm", {}, id="shm"),
    *([pytest.param("dma", {}, id="dma")] if HAS_DMA else []),
    pytest.param("pbo", {"persistent": True}, id="pbo"),
    pytest.param("pbo", {"persistent": False}, id="pbo-mapped"),
    pytest.param("toy", {}, id="a kind of a user"),
]
every_kind = pytest.mark.parametrize(("kind", "options"), KINDS)
LEAVES: dict[str, Callable[[], tm.mr.DeviceMemoryResource]] = {
    "shm": tm.mr.SharedMemoryResource,
    "dma": tm.mr.DmaMemoryResource,
    "pbo": tm.mr.PixelBufferResource,
    "toy": lambda: tm.mr.KindMemoryResource("toy"),
}


class Toy:
    """Memory of a user's own kind, which counts its ends."""

    released = 0

    def __init__(self, nbytes: int) -> None:
        self.memory = ctypes.create_string_buffer(nbytes)

    def release(self) -> None:
        Toy.released += 1


def make_toy(nbytes: int, space: tm.LogicalMemorySpace = tm.main, *, tag: str | None = None) -> Storage:
    owner = Toy(nbytes)
    address = ctypes.addressof(owner.memory)
    return Storage(address, nbytes, owner=owner, space=space, memory=tm.TensorMemory("toy"), device=(1, 0))


@pytest.fixture(autouse=True)
def toys(request: pytest.FixtureRequest) -> Iterator[None]:
    if "kind" in request.fixturenames and request.getfixturevalue("kind") == "pbo":
        request.getfixturevalue("opengl")
    kind = register_memory("toy", make_toy)
    yield
    unregister_memory(kind)


@contextmanager
def serving(kind: str, mr: tm.mr.DeviceMemoryResource) -> Iterator[None]:
    before = tm.mr.get_kind_resource(kind)
    tm.mr.set_kind_resource(kind, mr)
    try:
        yield
    finally:
        tm.mr.set_kind_resource(kind, before)


@every_kind
def test_a_limit_over_the_leaf_of_a_kind_counts_and_refuses(kind: str, options: dict[str, Any]) -> None:
    limited = tm.mr.LimitingResourceAdaptor(LEAVES[kind](), "10KiB")
    with serving(kind, limited):
        first = allocate(8192, kind, tag="frames", **options)
        assert limited.bytes_outstanding == limited.allocated_bytes == 8192
        with pytest.raises(errors.OutOfBudget) as refused:
            allocate(8192, kind, tag="frames", **options)
        assert (refused.value.requested, refused.value.remaining) == (8192, 2048)
        assert refused.value.report() is not None
        first.close()
        assert limited.bytes_outstanding == limited.allocated_bytes == 0
        allocate(8192, kind, **options).close()


@every_kind
def test_what_is_out_is_tracked_with_its_tag(kind: str, options: dict[str, Any]) -> None:
    tracking = tm.mr.TrackingResourceAdaptor(LEAVES[kind]())
    with serving(kind, tracking):
        with tm.tag("in force"):
            held = allocate(4096, kind, **options)
        named = allocate(4096, kind, tag="given", **options)
        assert sorted(block.tag for block in tracking.outstanding()) == ["given", "in force"]
        assert held.block is not None and held.block.tag == "in force" and held.block.mr is tracking
        del held
        gc.collect()
        assert [block.tag for block in tracking.outstanding()] == ["given"]
        named.close()
        assert tracking.outstanding() == [] and named.block is None


@every_kind
def test_statistics_see_every_byte_once(kind: str, options: dict[str, Any]) -> None:
    counting = tm.mr.StatisticsResourceAdaptor(LEAVES[kind]())
    with serving(kind, counting):
        storages = [allocate(1000 * n, kind, **options) for n in (1, 2, 3)]
        assert counting.allocation_counts.current_bytes == 6000 == counting.bytes_outstanding
        del storages
        gc.collect()
    found = counting.allocation_counts
    assert (found.current_bytes, found.peak_bytes, found.total_count) == (0, 6000, 3)


@every_kind
def test_a_trace_has_one_beginning_and_one_end_with_space_and_tag(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    leaf = LEAVES[kind]()
    with serving(kind, leaf), tm.trace(tmp_path / "run.tmt"):
        with tm.tag("frames"):
            allocate(5000, kind, **options).close()
            dropped = allocate(6000, kind, **options)
        del dropped
        gc.collect()
    with tm.trace.open(tmp_path / "run.tmt") as trace:
        reporters = trace.names.reporters
        seen = [
            (event.kind, event.nbytes, event.tag, reporters[event.resource].space)
            for event in trace.events()
            if event.nbytes in (5000, 6000)
        ]
    assert seen == [
        ("allocate", 5000, "frames", "main"),
        ("deallocate", 5000, "frames", "main"),
        ("allocate", 6000, "frames", "main"),
        ("deallocate", 6000, "frames", "main"),
    ]


@every_kind
def test_a_resource_written_in_python_may_stand_above(kind: str, options: dict[str, Any]) -> None:
    class Counting(tm.mr.DeviceMemoryResource):
        calls = 0

        def allocate(self, nbytes: Any, stream: Any = None, *, alignment: Any = None, tag: Any = None) -> Any:
            self.calls += 1
            return super().allocate(nbytes, stream, alignment=alignment, tag=tag)

    leaf = LEAVES[kind]()
    above, below = Counting(leaf), Counting(leaf)
    for stack in (above, tm.mr.LimitingResourceAdaptor(below, "1MiB")):
        with serving(kind, stack):
            storage = allocate(4096, kind, **options)
            assert leaf.bytes_outstanding == 4096
            with storage.map("rw") as mapped:
                memoryview(mapped)[:4] = b"abcd"
            storage.close()
    assert above.calls == below.calls == 1 and leaf.bytes_outstanding == 0


def test_the_owner_of_a_users_kind_is_released_once_whoever_ends_it() -> None:
    before = Toy.released
    storage = allocate(64, "toy")
    assert isinstance(storage.owner, Toy)
    storage.close()
    storage.close()
    assert Toy.released == before + 1
    ring = [allocate(64, "toy")]
    ring[0].owner.ring = ring  # garbage that only the collector finds
    del ring
    gc.collect()
    assert Toy.released == before + 2
    with serving("toy", tm.mr.LimitingResourceAdaptor(LEAVES["toy"](), 32)), pytest.raises(errors.OutOfBudget):
        allocate(64, "toy")
    assert Toy.released == before + 3


def test_what_a_users_release_raises_reaches_close_and_the_memory_is_gone() -> None:
    class Broken(Toy):
        def release(self) -> None:
            raise ValueError("stuck")

    owner = Broken(64)
    leaf = tm.mr.KindMemoryResource("toy")
    with serving("toy", leaf):
        unregister_memory("toy")
        register_memory(
            "toy",
            lambda nbytes, space: Storage(
                ctypes.addressof(owner.memory), nbytes, owner=owner, space=space, memory="toy", device=(1, 0)
            ),
        )
        storage = allocate(64, "toy")
        with pytest.raises(ValueError, match="stuck"):
            storage.close()
        assert storage.closed and leaf.bytes_outstanding == 0


def test_the_same_address_may_be_handed_out_twice_by_a_users_kind() -> None:
    owner = Toy(64)
    unregister_memory("toy")
    register_memory(
        "toy",
        lambda nbytes, space: Storage(
            ctypes.addressof(owner.memory), nbytes, owner=owner, space=space, memory="toy", device=(1, 0)
        ),
    )
    leaf = tm.mr.KindMemoryResource("toy")
    with serving("toy", leaf):
        first, second = allocate(64, "toy"), allocate(64, "toy")
        assert first.ptr == second.ptr and leaf.bytes_outstanding == 128
        first.close()
        second.close()
    assert leaf.bytes_outstanding == 0


def test_memory_of_others_is_counted_with_its_tag_and_once() -> None:
    mine = tm.zeros(4096, "uint8", memory="shm", tag="mine")
    tracking = tm.mr.TrackingResourceAdaptor(tm.mr.SharedMemoryResource())
    fd, theirs = mine.clone_fd(), os.memfd_create("theirs", os.MFD_ALLOW_SEALING)
    os.truncate(theirs, 8192)
    with serving("shm", tracking):
        again = tm.from_fd(fd)
        assert tracking.outstanding() == []  # mine is counted where it was made
        imported, once_more = tm.from_fd(theirs, trust=True, tag="camera"), tm.from_fd(theirs, trust=True)
        assert [(block.tag, block.nbytes) for block in tracking.outstanding()] == [("camera", 8192)]
        imported.close()
        assert len(tracking.outstanding()) == 1
        once_more.close()
        assert tracking.outstanding() == []
    again.close()
    os.close(fd)
    os.close(theirs)


def test_a_limit_refuses_memory_of_others_and_nothing_is_left_of_it() -> None:
    fd = os.memfd_create("theirs", os.MFD_ALLOW_SEALING)
    os.truncate(fd, 8192)
    descriptors = len(os.listdir("/proc/self/fd"))
    limited = tm.mr.LimitingResourceAdaptor(tm.mr.SharedMemoryResource(), 4096)
    with serving("shm", limited), pytest.raises(errors.OutOfBudget):
        tm.from_fd(fd, trust=True)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    os.close(fd)


def test_a_frame_ring_has_its_tag_and_is_counted_once() -> None:
    tracking = tm.mr.TrackingResourceAdaptor(tm.mr.SharedMemoryResource())
    with serving("shm", tracking):
        with tm.FrameRing(3, (64, 64), tag="camera") as ring:
            assert sorted((block.tag, block.nbytes) for block in tracking.outstanding()) == [
                ("camera", os.fstat(ring.fds[0]).st_size),
                ("camera", ring.nbytes),
            ]
        assert tracking.outstanding() == []


@pytest.mark.parametrize("kind", ["shm", "pbo", *(["dma"] if HAS_DMA else [])])
def test_a_leaf_works_alone_and_under_a_pool(kind: str) -> None:
    leaf = LEAVES[kind]()
    block = leaf.allocate("64KiB", tag="alone")
    with memoryview(block).cast("B") as view:
        view[:4] = b"abcd"
    assert (block.tag, block.ptr % 256, leaf.bytes_outstanding) == ("alone", 0, 65536)
    leaf.deallocate(block)
    pool = tm.mr.PoolMemoryResource(leaf)
    tensor = tm.zeros((64, 64), mr=pool)
    assert tensor.tolist()[3] == [0.0] * 64
    with pytest.raises(errors.MemoryUnavailable, match="parts of larger memory"), serving(kind, pool):
        allocate(4096, kind)
    del tensor, pool, block
    gc.collect()
    assert leaf.bytes_outstanding == 0


def test_guards_around_shared_memory_find_damage_and_it_is_not_given_away() -> None:
    guarded = tm.mr.DebugGuardResourceAdaptor(tm.mr.SharedMemoryResource())
    with serving("shm", guarded):
        tensor = tm.empty(64, "uint8", memory="shm")
        with tensor.map("rw") as mapped:
            memoryview(mapped)[:] = bytes(range(64))
        assert tensor.tolist() == list(range(64))
        with pytest.raises(errors.NotSupported, match="guards"):
            tensor.clone_fd()
        ctypes.memset(tensor.ptr + 64, 0, 1)
        with pytest.raises(errors.OutOfBounds):
            tensor.close()


@needs_opengl
def test_memory_without_an_address_is_not_guarded_and_not_touched() -> None:
    leaf = tm.mr.PixelBufferResource()
    with serving("pbo", tm.mr.DebugGuardResourceAdaptor(leaf)), pytest.raises(errors.NotSupported):
        allocate(4096, "pbo", persistent=False)
    with serving("pbo", leaf):
        storage = allocate(4096, "pbo", persistent=False)
        assert storage.block is not None
        with pytest.raises(errors.InvalidArgument, match="cannot touch"):
            memoryview(storage.block)


def test_only_a_stack_over_the_kind_may_serve_it() -> None:
    for mr in (tm.mr.HostMemoryResource(), tm.mr.KindMemoryResource("toy")):
        with pytest.raises(errors.InvalidArgument, match="was asked for"):
            tm.mr.set_kind_resource("shm", mr)
    with pytest.raises(errors.NotSupported, match="size alone"):
        tm.mr.KindMemoryResource("toy").allocate(64)


def test_shared_memory_of_a_named_resource() -> None:
    mr = tm.mr.StatisticsResourceAdaptor(tm.mr.SharedMemoryResource())
    tensor = tm.zeros(100, "uint8", memory="shm", mr=mr)
    assert str(tensor.memory) == "shm" and mr.allocation_counts.current_bytes == 100
    with pytest.raises(errors.InvalidArgument, match="makes memory of kind mem"):
        tm.zeros(100, memory="shm", mr=tm.mr.HostMemoryResource())


def test_files_that_nobody_saw_are_used_again_zeroed_and_trim_closes_them() -> None:
    leaf = tm.mr.SharedMemoryResource()
    leaf.trim()
    descriptors = len(os.listdir("/proc/self/fd"))
    blocks = [leaf.allocate(4096 * n) for n in (1, 2, 3)]
    for block in blocks:
        ctypes.memset(block.ptr, 7, block.nbytes)
    addresses = {block.ptr for block in blocks}
    del block, blocks
    again = [leaf.allocate(4096 * n) for n in (3, 1, 2)]
    assert {block.ptr for block in again} == addresses
    assert all(not any(bytes(block)) for block in again)
    del again
    assert len(os.listdir("/proc/self/fd")) == descriptors + 3
    leaf.trim()
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("ending", ["closed", "dropped"])
@every_kind
def test_the_memory_is_released_when_every_stream_has_passed(kind: str, options: dict[str, Any], ending: str) -> None:
    leaf, gate = LEAVES[kind](), threading.Event()
    with serving(kind, leaf), tm.Stream(tm.drivers.host()) as stream:
        storage = allocate(4096, kind, **options)
        released = Toy.released
        assert storage.block is not None
        stream.launch(gate.wait)
        leaf.finish_block_use(storage.block, stream, "write")
        if ending == "closed":
            storage.close()
        del storage
        gc.collect()
        leaf.reap_pending()
        assert leaf.bytes_outstanding == 4096 and Toy.released == released
        gate.set()
        stream.synchronize()
        leaf.reap_pending()
        assert leaf.bytes_outstanding == 0 and Toy.released == released + (kind == "toy")
