"""Every kind of memory passes the same suite; one of somebody else's is admitted by it, and found by entry point."""

import ctypes
import mmap
import os
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

import tensormem as tm
from support.bracketed import Bracketed
from support.opengl import needs_opengl
from tensormem import errors
from tensormem.gl import GlContext
from tensormem.memories import Storage, TensorMemory, allocate, providers, register_memory, registry, unregister_memory
from tensormem.memories.registry import MemoryProvider
from tensormem.testing.memories import MemoryConformance


class TestMem(MemoryConformance):
    def allocate(self, nbytes: int) -> Storage:
        return allocate(nbytes, "mem")


class TestPinnedMem(MemoryConformance):
    def allocate(self, nbytes: int) -> Storage:
        return allocate(nbytes, "mem", tm.pinned)


class TestMemOfAStack(MemoryConformance):
    makes_system_calls = False  # its pool keeps what it has
    follows_limits = False  # it is named
    stack = tm.mr.StatisticsResourceAdaptor(tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource()))

    def allocate(self, nbytes: int) -> Storage:
        return allocate(nbytes, "mem", mr=self.stack)

    def live(self) -> int | None:
        return self.stack.allocation_counts.current_count


@needs_opengl
class TestPersistentPbo(MemoryConformance):
    makes_system_calls = False  # OpenGL makes them
    persistent: bool | None = None

    def allocate(self, nbytes: int) -> Storage:
        storage = allocate(nbytes, "pbo", persistent=self.persistent)
        assert storage.host_accessible is (self.persistent is None)
        return storage

    def live(self) -> int | None:
        GlContext.default().drain()
        return len(GlContext.default().buffers)


@needs_opengl
class TestPboWithOneMap(TestPersistentPbo):
    persistent = False
    has_an_address = False


class TestShm(MemoryConformance):
    def allocate(self, nbytes: int) -> Storage:
        return allocate(nbytes, "shm")

    def live(self) -> int | None:
        tm.mr.trim()  # which it keeps for reuse
        return len(os.listdir("/proc/self/fd"))


class TestShmThatPeersMayOnlyRead(TestShm):
    def allocate(self, nbytes: int) -> Storage:
        return allocate(nbytes, "shm", peers="r")


def bracketed(nbytes: int, space: tm.LogicalMemorySpace = tm.main, **options: Any) -> Storage:
    if nbytes < 1:
        raise errors.InvalidSize(nbytes)
    return Bracketed(nbytes).storage()


def allocate_as(kind: str, provider: MemoryProvider, nbytes: int) -> Storage:
    """As whoever registered the kind would."""
    register_memory(kind, provider)
    try:
        return allocate(nbytes, kind)
    finally:
        unregister_memory(kind)


class TestBracketedMemory(MemoryConformance):
    """A toy with an address only while it is mapped."""

    has_an_address = False
    makes_system_calls = False

    def allocate(self, nbytes: int) -> Storage:
        return allocate_as("bracketed", bracketed, nbytes)


class Pages:
    """A toy kind: pages of their own for every storage."""

    live = 0

    def __init__(self, nbytes: int) -> None:
        self.memory = (ctypes.c_char * nbytes).from_buffer(mmap.mmap(-1, nbytes))
        Pages.live += 1

    def release(self) -> None:
        del self.memory
        Pages.live -= 1


def pages(nbytes: int, space: tm.LogicalMemorySpace = tm.main, **options: Any) -> Storage:
    if nbytes < 1:
        raise errors.InvalidSize(nbytes)
    owner = Pages(nbytes)
    return Storage(
        ctypes.addressof(owner.memory),
        nbytes,
        owner=owner,
        space=space,
        memory=TensorMemory.introduce("pages"),
        device=(1, 0),
        driver=tm.drivers.host(),
    )


class TestToyMemory(MemoryConformance):
    makes_system_calls = False

    def allocate(self, nbytes: int) -> Storage:
        return allocate_as("pages", pages, nbytes)

    def live(self) -> int | None:
        return Pages.live


def test_a_kind_is_used_by_name_after_it_is_registered() -> None:
    kind = register_memory("pages", pages)
    try:
        assert tm.zeros(4, memory="pages").memory is kind
        with pytest.raises(errors.InvalidArgument):
            register_memory("pages", allocate)
    finally:
        unregister_memory("pages")
    with pytest.raises(errors.MemoryUnavailable):
        tm.zeros(4, memory="pages")


def test_a_kind_of_an_installed_package_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("toy_pages", f"{__name__}:pages", registry.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda self: pages)
    monkeypatch.setattr(registry, "entry_points", lambda **wanted: EntryPoints([point]).select(**wanted))
    try:
        assert tm.full(2, 7, "uint8", memory="toy_pages").tolist() == [7, 7]
        assert "toy_pages" in providers()
    finally:
        unregister_memory("toy_pages")


def test_kinds_have_exact_names_and_one_object_each() -> None:
    assert TensorMemory("shm") is TensorMemory.SHM and str(TensorMemory.PBO) == "pbo"
    for wrong in ("Mem", "mem ", "", "nothing_like_it", 3, None):
        with pytest.raises(errors.InvalidMemoryType):
            TensorMemory(wrong)
    for wrong in ("Upper", "two words", 3):
        with pytest.raises(errors.InvalidMemoryType):
            register_memory(wrong, pages)  # type: ignore[arg-type]


def test_plain_memory_cannot_go_and_what_is_not_there_cannot_either() -> None:
    for kind in ("mem", "dma"):
        with pytest.raises(errors.InvalidArgument):
            unregister_memory(kind)
    with pytest.raises(errors.InvalidArgument):
        register_memory("thing", 3)  # type: ignore[arg-type]


def test_a_use_is_served_by_the_best_kind_that_works_and_says_why() -> None:
    tensor = tm.zeros(4, use="gpu")
    assert tensor.memory in ("dma", "pbo", "mem") and tensor.memory_reason
    assert tensor.memory == "dma" or "no dma" in tensor.memory_reason
