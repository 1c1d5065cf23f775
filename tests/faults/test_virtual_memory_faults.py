"""For every k the k-th system call of an operation on virtual memory fails: all is as it was, and again works."""

import ctypes
import itertools
import os
from collections.abc import Callable
from typing import Protocol

import pytest

from support.holdings import held, nothing_left_behind
from tensormem import _core, errors
from tensormem.testing.faults import failing_system_call
from tensormem.vmm import GrowableBuffer, VirtualAddressRange, VirtualMemoryManager

PAGE = 4096
MIB = 1 << 20


class Stage(Protocol):
    """What an operation starts from. Two stages in the same state give the same picture."""

    def picture(self) -> object: ...
    def close(self) -> None: ...


class Ranges:
    """Two ranges, pages of all kinds, and a mapping that was cut in three by its access."""

    def __init__(self) -> None:
        self.vmm = VirtualMemoryManager()
        self.va, self.other = self.vmm.reserve(64 * PAGE), self.vmm.reserve(64 * PAGE)
        self.pages = [self.vmm.alloc_physical(PAGE, huge_pages=False) for _ in range(4)]
        self.block = self.vmm.alloc_physical(4 * PAGE, huge_pages=False)
        self.shared = self.vmm.alloc_physical(PAGE, exportable=True)
        self.fd = self.vmm.export_handle(self.shared)
        self.mapping = self.vmm.map(self.va, self.block, 8 * PAGE, access="read_write")
        for index in range(4):
            ctypes.memset(self.mapping.address + index * PAGE, index + 1, PAGE)
        self.vmm.set_access(self.va, None, "read", offset=9 * PAGE, size=PAGE)
        self.made: list[object] = []

    def picture(self) -> object:
        info = dict(self.vmm.memory_info())
        driver = {name: count for name, count in held().items() if name != "leftovers"}
        return [
            self._mappings(self.va),
            self._mappings(self.other),
            self.other.released,
            driver,
            info["mapped_bytes"],
        ] + [info[name] for name in ("reserved_bytes", "physical_bytes", "ranges", "physicals", "mappings")]

    def _mappings(self, va: VirtualAddressRange) -> object:
        known = [*self.pages, self.block, self.shared]
        return [
            (m.offset, m.size, known.index(m.physical), m.physical.mapping_count, m.physical_offset, m.access)
            + ((ctypes.string_at(m.address, m.size),) if m.access != "none" else ())
            for m in self.vmm.mappings(va)
        ]

    def close(self) -> None:
        os.close(self.fd)
        self.vmm.close()

    def map_a_list(self) -> None:
        self.vmm.map(self.va, self.pages, 20 * PAGE, access="read_write")

    def map_a_list_beside_a_neighbour(self) -> None:
        self.vmm.map(self.va, [self.pages[0], self.block], 3 * PAGE, access="read")

    def unmap_the_middle(self) -> None:
        self.vmm.unmap(self.va, 9 * PAGE, 2 * PAGE)

    def set_access_of_the_middle(self) -> None:
        self.vmm.set_access(self.va, None, "none", offset=10 * PAGE, size=PAGE)

    def set_access_across_the_cuts(self) -> None:
        self.vmm.set_access(self.va, None, "read", offset=8 * PAGE, size=4 * PAGE)

    def move_in_the_range(self) -> None:
        self.vmm.move(self.mapping, 30 * PAGE)

    def move_to_the_other_range(self) -> None:
        self.vmm.move(self.mapping, 0, to=self.other)

    def reserve(self) -> None:
        self.made.append(self.vmm.reserve(8 * MIB))

    def make_pages(self) -> None:
        self.made.append(self.vmm.alloc_physical(4 * MIB))

    def make_small_pages(self) -> None:
        self.made.append(self.vmm.alloc_physical(3 * PAGE, huge_pages=False))

    def make_exportable_pages(self) -> None:
        self.made.append(self.vmm.alloc_physical(2 * MIB, exportable=True))

    def export_a_handle(self) -> None:
        os.close(self.vmm.export_handle(self.shared))

    def import_a_handle(self) -> None:
        self.made.append(self.vmm.import_handle(self.fd, PAGE))

    def unmap_the_mapping(self) -> None:
        self.mapping.unmap()

    def release_the_other_range(self) -> None:
        self.vmm.release(self.other)


class Buffer:
    """A buffer of one and a half pages whose bytes are all written."""

    def __init__(self) -> None:
        self.buffer = GrowableBuffer(64 * PAGE, 6 * PAGE + PAGE // 2)
        self.fill()

    def fill(self) -> None:
        with memoryview(self.buffer) as view:
            view[:] = b"\xa5" * len(view)

    def picture(self) -> object:
        with memoryview(self.buffer) as view:
            content = bytes(view)
        driver = {name: count for name, count in held().items() if name != "leftovers"}
        return self.buffer.nbytes, self.buffer.capacity, content, driver

    def close(self) -> None:
        self.buffer.close()

    def grow(self) -> None:
        self.buffer.resize(11 * PAGE)

    def shrink(self) -> None:
        self.buffer.resize(2 * PAGE + 100)

    def shrink_to_nothing(self) -> None:
        self.buffer.resize(0)


class LargeBuffer(Buffer):
    """The same with large pages."""

    def __init__(self) -> None:
        self.buffer = GrowableBuffer(64 * MIB, 3 * MIB)
        self.fill()

    def grow_large(self) -> None:
        self.buffer.resize(7 * MIB)

    def shrink_large(self) -> None:
        self.buffer.resize(1 * MIB)


OPERATIONS: list[tuple[type[Ranges | Buffer], str]] = [
    (stage, name)
    for stage in (Ranges, Buffer, LargeBuffer)
    for name in vars(stage)
    if not name.startswith("_") and name not in ("picture", "close", "fill")
]


def with_fault(nth: int, call: Callable[[], object]) -> errors.TensormemError | None:
    """What `call` raises when its `nth` system call fails. All errors of ours are fine; any other is not."""
    with failing_system_call(nth):
        try:
            call()
        except errors.TensormemError as refusal:
            return refusal
    return None


def retry_leftovers() -> None:
    """What the kernel refused to take back is given back with the next pages that are made."""
    with VirtualMemoryManager() as vmm:
        vmm.alloc_physical(PAGE, huge_pages=False)


def picture_afterwards(make: Callable[[], Stage], name: str) -> object:
    stage = make()
    getattr(stage, name)()
    picture = stage.picture()
    stage.close()
    return picture


@pytest.mark.parametrize(("make", "name"), OPERATIONS, ids=[f"{make.__name__}-{name}" for make, name in OPERATIONS])
def test_whichever_system_call_fails_all_is_as_before_and_again_works(make: Callable[[], Stage], name: str) -> None:
    make().close()
    done = picture_afterwards(make, name)
    failed = 0
    for nth in itertools.count(1):
        with nothing_left_behind():
            stage = make()
            before = stage.picture()
            refusal = with_fault(nth, getattr(stage, name))
            fired = _core.fault_has_fired()
            if refusal is not None:
                failed += 1
                assert stage.picture() == before, refusal
                getattr(stage, name)()
            assert stage.picture() == done, refusal
            stage.close()
            del stage, refusal
            retry_leftovers()
        if not fired:
            break
    assert nth > 1
    assert failed > 0 or name == "make_pages", "only large pages have another way: small ones"


CLOSINGS: dict[str, Callable[[Ranges], object]] = {
    "the range": lambda stage: stage.va.close(),
    "the manager": lambda stage: stage.vmm.close(),
    "its pages": lambda stage: stage.block.close(),
}


@pytest.mark.parametrize("what", CLOSINGS)
def test_a_close_that_fails_half_way_is_finished_by_the_next(what: str) -> None:
    Ranges().close()
    refusals = 0
    for nth in itertools.count(1):
        with nothing_left_behind():
            stage = Ranges()
            stage.vmm.map(stage.va, stage.pages[0], 0)
            refusals += with_fault(nth, lambda stage=stage: CLOSINGS[what](stage)) is not None  # type: ignore[misc]
            fired = _core.fault_has_fired()
            CLOSINGS[what](stage)
            assert stage.va.released or what == "its pages"
            stage.close()
            del stage
            retry_leftovers()
        if not fired:
            break
    assert nth > 1 or what == "its pages"
    assert refusals > 0 or what == "its pages"


def test_whatever_fails_while_everything_is_dropped_it_all_goes_back() -> None:
    Ranges().close()
    for nth in itertools.count(1):
        with nothing_left_behind():
            stage = Ranges()
            os.close(stage.fd)
            with failing_system_call(nth):
                del stage
            fired = _core.fault_has_fired()
            retry_leftovers()
        if not fired:
            break
    assert nth > 3
