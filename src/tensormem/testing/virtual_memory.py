"""Owns: the conformance suite that the virtual memory of every driver passes.

Joining it costs a class of a few lines:

    class TestMyDriver(VirtualMemoryConformance):
        def make(self):
            return VirtualMemoryManager("cuda:0")

Memory is read and written by the driver's own copies, never by the processor. Must not know: any particular driver.
"""

import contextlib
import ctypes
import gc
import itertools
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from tensormem import errors
from tensormem.streams import Stream
from tensormem.vmm import Mapping, PhysicalAllocation, VirtualAddressRange, VirtualMemoryManager

__all__ = ["VirtualMemoryConformance", "read", "unchanged", "write"]

_TOO_LARGE = 2**62
_DEVICE_FACTS = ("free_bytes", "total_bytes")  # others move them too


def write(vmm: VirtualMemoryManager, address: int, content: bytes) -> None:
    """Put bytes at an address of the manager's device."""
    source = ctypes.create_string_buffer(content, len(content))
    vmm.driver.copy(address, ctypes.addressof(source), len(content))
    Stream.default(vmm.driver).synchronize()


def read(vmm: VirtualMemoryManager, address: int, nbytes: int) -> bytes:
    """The bytes at an address of the manager's device."""
    target = ctypes.create_string_buffer(nbytes)
    vmm.driver.copy(ctypes.addressof(target), address, nbytes)
    Stream.default(vmm.driver).synchronize()
    return target.raw


def _contents(vmm: VirtualMemoryManager, mapping: Mapping) -> bytes | None:
    try:
        return read(vmm, mapping.address, 64)
    except errors.NotSupported:  # abstract memory has none that could change
        return None


def _picture(vmm: VirtualMemoryManager, ranges: tuple[VirtualAddressRange, ...]) -> object:
    mappings = [mapping for va in ranges for mapping in vmm.mappings(va)]
    return (
        [(m.address, m.size, m.physical, m.physical_offset, m.access, m.physical.mapping_count) for m in mappings],
        [_contents(vmm, m) for m in mappings if m.access != "none"],
        [va.released for va in ranges],
        {name: value for name, value in vmm.memory_info().items() if name not in _DEVICE_FACTS},
    )


@contextlib.contextmanager
def unchanged(vmm: VirtualMemoryManager, *ranges: VirtualAddressRange) -> Iterator[None]:
    """What is mapped, with which access and contents, and what the manager holds is the same at the end."""
    before = _picture(vmm, ranges)
    yield
    assert _picture(vmm, ranges) == before


class VirtualMemoryConformance:
    """What virtual memory promises on every driver. Subclass it, and say in `make` how to open a manager."""

    def make(self) -> VirtualMemoryManager:
        """A fresh manager of a device with at least 64 pages to give."""
        raise NotImplementedError("say how to make the manager")

    @pytest.fixture
    def vmm(self) -> Iterator[VirtualMemoryManager]:
        """What `make` opens; a test that leaves something behind fails."""
        manager = self.make()
        yield manager
        gc.collect()
        held: dict[str, object] = {} if manager.closed else dict(manager.memory_info())
        manager.close()
        assert not any(held[name] for name in held if name not in _DEVICE_FACTS), f"left behind: {held}"

    @pytest.fixture
    def page(self, vmm: VirtualMemoryManager) -> int:
        """The smallest unit of the device."""
        return vmm.granularity()[0]

    @pytest.fixture
    def va(self, vmm: VirtualMemoryManager, page: int) -> Iterator[VirtualAddressRange]:
        """Addresses of sixteen pages."""
        with vmm.reserve(16 * page) as va:
            yield va

    # --- Addresses ---

    def test_a_range_says_where_it_is(self, vmm: VirtualMemoryManager, page: int) -> None:
        with vmm.reserve(4 * page, 4 * page) as va:
            assert (va.size, va.alignment, va.base % (4 * page), va.end) == (4 * page, 4 * page, 0, va.base + 4 * page)
            assert va.contains(va.base) and va.contains(va.end - 1)
            assert not va.contains(va.end) and not va.contains(va.base - 1)
            assert int(va.__index__()) == va.base and hex(va.base) in repr(va) and f"{va.size} bytes" in str(va)
            assert not va.released and not va.is_mapped() and vmm.mappings(va) == []

    def test_without_an_alignment_a_range_suits_the_fastest_pages(self, vmm: VirtualMemoryManager, page: int) -> None:
        recommended = vmm.granularity()[1]
        with vmm.reserve(recommended) as large:
            assert large.base % recommended == 0
        with vmm.reserve(recommended + page) as small:
            assert small.base % page == 0

    def test_bad_sizes_and_alignments_are_refused(self, vmm: VirtualMemoryManager, page: int) -> None:
        with unchanged(vmm):
            for size in (0, page + 1, page - 1, -page, 2**63, 2**70, "-1 MiB", "twelve"):
                with pytest.raises(errors.InvalidSize) as refused:
                    vmm.reserve(size)
                assert isinstance(size, str) or refused.value.nbytes == size
            for alignment in (0, 3, -page, page + 1, 2**70):
                with pytest.raises(errors.InvalidAlignment) as misaligned:
                    vmm.reserve(page, alignment)
                assert misaligned.value.alignment == alignment
            with pytest.raises(errors.InvalidSize, match="multiple of the alignment"):
                vmm.reserve(3 * page, 2 * page)

    def test_more_addresses_than_there_are_are_refused(self, vmm: VirtualMemoryManager) -> None:
        with unchanged(vmm), pytest.raises(errors.OutOfVirtualMemory) as refused:
            vmm.reserve(_TOO_LARGE)
        assert refused.value.requested == _TOO_LARGE

    def test_a_mapped_range_is_not_released(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        vmm.map(va, [vmm.alloc_physical(page), vmm.alloc_physical(page)], page, access="read_write")
        write(vmm, va.base + page, b"still here")
        with unchanged(vmm, va), pytest.raises(errors.StillMapped) as refused:
            vmm.release(va)
        assert (refused.value.address, refused.value.mappings) == (va.base, 2)
        assert read(vmm, va.base + page, 10) == b"still here"

    def test_a_released_range_is_refused_everywhere(self, vmm: VirtualMemoryManager, page: int) -> None:
        va, physical = vmm.reserve(4 * page), vmm.alloc_physical(page)
        with vmm.reserve(page) as other, vmm.map(other, physical) as mapping:
            vmm.release(va)
            calls: list[Callable[[], object]] = [
                lambda: vmm.release(va),
                lambda: vmm.map(va, physical),
                lambda: vmm.unmap(va, 0, page),
                lambda: vmm.set_access(va, None, "read", size=page),
                lambda: vmm.get_access(va, size=page),
                lambda: vmm.move(mapping, 0, to=va),
            ]
            with unchanged(vmm, other, va):
                for call in calls:
                    with pytest.raises(errors.UseAfterRelease) as refused:
                        call()
                    assert refused.value.address == va.base
            assert va.released and not va.is_mapped() and "released" in repr(va)
            va.close()  # once more is no mistake

    # --- Physical memory ---

    def test_physical_memory_says_what_it_is(self, vmm: VirtualMemoryManager, page: int) -> None:
        with vmm.alloc_physical(2 * page) as physical:
            assert (physical.size, physical.device, physical.mapping_count) == (2 * page, vmm.device, 0)
            assert not physical.closed and not physical.imported and physical.handle != 0
            assert f"{2 * page} bytes" in str(physical) and "mapped 0 times" in repr(physical)
        assert physical.closed and "freed" in repr(physical)

    def test_bad_sizes_of_physical_memory_are_refused(self, vmm: VirtualMemoryManager, page: int) -> None:
        with unchanged(vmm):
            for size in (0, page + 1, -page, 2**63, "one page"):
                with pytest.raises(errors.InvalidSize):
                    vmm.alloc_physical(size)
            with pytest.raises(errors.OutOfPhysicalMemory) as refused:
                vmm.alloc_physical(2**50)
            assert refused.value.requested == 2**50

    def test_mapped_physical_memory_is_not_freed(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physical = vmm.alloc_physical(page)
        vmm.map(va, physical, 0, access="read_write")
        vmm.map(va, physical, page)
        with unchanged(vmm, va), pytest.raises(errors.StillMapped) as refused:
            vmm.free_physical(physical)
        assert refused.value.mappings == 2
        vmm.unmap(va, 0, 2 * page)
        vmm.free_physical(physical)

    def test_freed_physical_memory_is_refused_everywhere(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physical, other = vmm.alloc_physical(page), vmm.alloc_physical(page)
        vmm.free_physical(physical)
        calls: list[Callable[[], object]] = [
            lambda: vmm.free_physical(physical),
            lambda: vmm.map(va, physical),
            lambda: vmm.map(va, [other, physical], access="read"),
            lambda: vmm.export_handle(physical),
        ]
        with unchanged(vmm, va):
            for call in calls:
                with pytest.raises(errors.UseAfterRelease):
                    call()
        physical.close()

    def test_closed_physical_memory_stays_until_its_last_mapping_is_gone(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        with vmm.alloc_physical(page) as physical:
            mapping = vmm.map(va, physical, access="read_write")
            write(vmm, va.base, b"kept")
        assert physical.closed and read(vmm, va.base, 4) == b"kept"
        moved = vmm.move(mapping, page)
        assert read(vmm, moved.address, 4) == b"kept" and vmm.memory_info()["physicals"] == 1
        moved.unmap()
        assert vmm.memory_info()["physicals"] == 0

    # --- Mappings ---

    def test_contents_belong_to_the_pages_not_to_the_addresses(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physical = vmm.alloc_physical(page)
        with vmm.map(va, physical, 0, access="read_write") as mapping:
            write(vmm, va.base, b"bytes")
            assert (mapping.is_live, mapping.offset, mapping.size) == (True, 0, page)
            assert vmm.mappings(va) == [mapping] and mapping.physical is physical and "offset 0x0" in repr(mapping)
        assert not mapping.is_live and vmm.mappings(va) == [] and "not mapped any more" in repr(mapping)
        vmm.map(va, physical, 5 * page, access="read")
        assert read(vmm, va.base + 5 * page, 5) == b"bytes"

    def test_one_page_at_two_addresses_shows_the_same_bytes(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physical = vmm.alloc_physical(page)
        first, second = (vmm.map(va, physical, at * page, access="read_write") for at in (0, 9))
        write(vmm, first.address + 7, b"one")
        assert read(vmm, second.address + 7, 3) == b"one" and physical.mapping_count == 2
        write(vmm, second.address, b"two")
        first.unmap()
        assert read(vmm, second.address, 3) == b"two" and physical.mapping_count == 1

    def test_a_part_of_physical_memory_is_mapped_or_refused_where_handles_are_whole(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physical = vmm.alloc_physical(4 * page)
        whole = vmm.map(va, physical, 8 * page, access="read_write")
        write(vmm, whole.address + 2 * page, b"third page")
        if vmm.whole_handles:
            with unchanged(vmm, va), pytest.raises(errors.NotSupported):
                vmm.map(va, physical, 0, physical_offset=page)
            with unchanged(vmm, va), pytest.raises(errors.NotSupported):
                vmm.map(va, physical, 0, size=page)
            with unchanged(vmm, va), pytest.raises(errors.NotSupported):
                vmm.unmap(va, 8 * page, page)
            return
        part_of = vmm.map(va, physical, 0, physical_offset=2 * page, size=page, access="read")
        assert (part_of.size, part_of.physical_offset) == (page, 2 * page)
        assert read(vmm, va.base, 10) == b"third page"
        vmm.unmap(va, 9 * page, page)  # the second page of four
        assert [(m.offset, m.size) for m in vmm.mappings(va)] == [(0, page), (8 * page, page), (10 * page, 2 * page)]
        assert not whole.is_live and physical.mapping_count == 3
        with whole:
            pass  # what is left of it goes
        assert [m.offset for m in vmm.mappings(va)] == [0]

    def test_bad_places_are_refused(self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int) -> None:
        physical = vmm.alloc_physical(2 * page)
        vmm.map(va, physical, 4 * page, access="read_write")
        with unchanged(vmm, va):
            for offset in (15 * page, 16 * page, 2**62, page // 2):
                with pytest.raises(errors.InvalidOffset) as outside:
                    vmm.map(va, physical, offset)
                assert (outside.value.offset, outside.value.capacity) == (offset, va.size)
            for offset in (3 * page, 4 * page, 5 * page):
                with pytest.raises(errors.AlreadyMapped) as overlapping:
                    vmm.map(va, physical, offset)
                assert (overlapping.value.offset, overlapping.value.size) == (4 * page, 2 * page)
            for skip in (2 * page, 2**62, page // 2):
                with pytest.raises(errors.InvalidOffset):
                    vmm.map(va, physical, 0, physical_offset=skip)
            for size in (0, page // 2, -1):
                with pytest.raises((errors.InvalidSize, errors.InvalidOffset)):
                    vmm.map(va, physical, 0, size=size)
            with pytest.raises(errors.InvalidOffset):
                vmm.map(va, physical, 0, size=3 * page)

    def test_several_are_mapped_behind_one_another(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physicals = [vmm.alloc_physical(nbytes) for nbytes in (page, 3 * page, page)]
        mappings = vmm.map(va, physicals, page, access="read_write")
        assert [(m.offset, m.physical) for m in mappings] == list(
            zip((page, 2 * page, 5 * page), physicals, strict=True)
        )
        assert vmm.get_access(va, offset=page, size=5 * page) == "read_write"
        mappings[1].unmap()
        assert [m.is_live for m in mappings] == [True, False, True]

    def test_all_of_several_are_mapped_or_none(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physicals = [vmm.alloc_physical(page) for _ in range(5)]
        vmm.map(va, physicals[4], 3 * page, access="read_write")
        with unchanged(vmm, va):
            with pytest.raises(errors.AlreadyMapped) as refused:
                vmm.map(va, physicals[:4], page, access="read_write")
            assert refused.value.offset == 3 * page
            with pytest.raises(errors.InvalidOffset):
                vmm.map(va, physicals[:4], 13 * page, access="read_write")
            with pytest.raises(errors.InvalidArgument):
                vmm.map(va, [], 0)
            with pytest.raises(errors.InvalidArgument):
                vmm.map(va, physicals[:2], 0, size=page)

    def test_unmapping_what_is_not_mapped_is_refused(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        mapping = vmm.map(va, vmm.alloc_physical(page), 2 * page, access="read_write")
        vmm.map(va, vmm.alloc_physical(page), 4 * page)
        with unchanged(vmm, va):
            for first, last, hole in ((0, 1, (0, 1)), (2, 5, (3, 4)), (1, 3, (1, 2)), (4, 9, (5, 9)), (0, 16, (0, 2))):
                with pytest.raises(errors.NotMapped) as refused:
                    vmm.unmap(va, first * page, (last - first) * page)
                assert refused.value.offset == hole[0] * page
                assert refused.value.size == (hole[1] - hole[0]) * page
            with pytest.raises(errors.NotMapped):
                vmm.unmap(va)
            for offset, size in ((16 * page, page), (0, 17 * page), (page // 2, page)):
                with pytest.raises(errors.InvalidOffset):
                    vmm.unmap(va, offset, size)
            for bad in (0, page // 2):
                with pytest.raises(errors.InvalidSize):
                    vmm.unmap(va, 2 * page, bad)
        mapping.unmap()
        with unchanged(vmm, va), pytest.raises(errors.NotMapped):
            mapping.unmap()

    def test_a_stale_mapping_does_not_unmap_its_heir(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physical = vmm.alloc_physical(page)
        stale = vmm.map(va, physical)
        stale.unmap()
        heir = vmm.map(va, physical, access="read_write")
        with unchanged(vmm, va):
            for call in (stale.unmap, lambda: vmm.move(stale, page)):
                with pytest.raises(errors.NotMapped):
                    call()
            with stale:
                pass
        assert heir.is_live and stale != heir

    # --- Access ---

    def test_access_is_what_was_said_last_and_the_least_of_a_range(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        first, second = vmm.map(va, [vmm.alloc_physical(page), vmm.alloc_physical(page)])
        assert (first.access, vmm.get_access(va, size=2 * page)) == ("none", "none")
        vmm.set_access(va, vmm.device, "read_write", size=2 * page)
        vmm.set_access(va, None, "read", offset=page, size=page)
        assert (first.access, second.access, vmm.get_access(va, size=2 * page)) == ("read_write", "read", "read")

    def test_bad_access_is_refused(self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int) -> None:
        vmm.map(va, vmm.alloc_physical(page), access="read_write")
        with unchanged(vmm, va):
            for flags in ("write", "", None, 3):
                with pytest.raises(errors.InvalidArgument):
                    vmm.set_access(va, None, flags, size=page)  # type: ignore[arg-type]
            for device in (-1, 10_000, "toaster:0", "9" * 5000):
                with pytest.raises(errors.InvalidArgument):
                    vmm.set_access(va, device, "read", size=page)
            with pytest.raises(errors.NotMapped) as refused:
                vmm.set_access(va, None, "read")
            assert (refused.value.offset, refused.value.size) == (page, 15 * page)
            with pytest.raises(errors.NotMapped):
                vmm.get_access(va)
            with pytest.raises(errors.InvalidOffset):
                vmm.set_access(va, None, "read", offset=16 * page)

    def test_access_of_a_part_cuts_a_mapping_and_the_whole_heals_it(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physical = vmm.alloc_physical(4 * page)
        mapping = vmm.map(va, physical, access="read_write")
        if vmm.whole_handles:
            with unchanged(vmm, va), pytest.raises(errors.NotSupported):
                vmm.set_access(va, None, "read", offset=page, size=page)
            return
        vmm.set_access(va, None, "read", offset=page, size=page)
        parts = [(m.offset, m.size, m.access) for m in vmm.mappings(va)]
        assert parts == [(0, page, "read_write"), (page, page, "read"), (2 * page, 2 * page, "read_write")]
        assert mapping.is_live and mapping.access == "read" and physical.mapping_count == 3
        middle = vmm.mappings(va)[1]
        vmm.set_access(va, None, "read_write", size=4 * page)
        assert vmm.mappings(va) == [mapping] and physical.mapping_count == 1 == vmm.memory_info()["mappings"]
        assert middle.is_live  # a part of what is one again
        moved = vmm.move(middle, 8 * page)
        assert [(m.offset, m.size) for m in vmm.mappings(va)] == [(0, page), (2 * page, 2 * page), (8 * page, page)]
        assert moved.physical_offset == page and moved.is_live

    # --- Moves ---

    def test_a_move_keeps_contents_access_and_aliases(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physical = vmm.alloc_physical(2 * page)
        mapping, alias = vmm.map(va, physical, 0, access="read_write"), vmm.map(va, physical, 8 * page, access="read")
        write(vmm, mapping.address + page, b"moving")
        with vmm.reserve(4 * page) as elsewhere:
            for target, offset in ((va, 4 * page), (elsewhere, 2 * page), (va, 0)):
                moved = vmm.move(mapping, offset, to=target)
                assert not mapping.is_live and moved.is_live and moved.access == "read_write"
                assert (moved.range, moved.offset, moved.physical) == (target, offset, physical)
                assert read(vmm, moved.address + page, 6) == b"moving" == read(vmm, alias.address + page, 6)
                assert (alias.access, physical.mapping_count) == ("read", 2)
                mapping = moved
            assert vmm.mappings(elsewhere) == [] and len(vmm.mappings(va)) == 2

    def test_a_bad_move_is_refused(self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int) -> None:
        mapping = vmm.map(va, vmm.alloc_physical(2 * page), access="read_write")
        vmm.map(va, vmm.alloc_physical(page), 6 * page)
        with unchanged(vmm, va):
            for offset in (0, page, 5 * page, 6 * page):
                with pytest.raises(errors.AlreadyMapped):
                    vmm.move(mapping, offset)
            for offset in (15 * page, 16 * page, page // 2):
                with pytest.raises(errors.InvalidOffset):
                    vmm.move(mapping, offset)
            with pytest.raises(TypeError):
                vmm.move(None, 0)  # type: ignore[arg-type]

    # --- Sharing ---

    def test_an_exported_handle_comes_back_as_the_same_memory(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        physical = vmm.alloc_physical(page, exportable=True)
        fd = vmm.export_handle(physical)
        try:
            imported = vmm.import_handle(fd, page)
        finally:
            os.close(fd)
        assert (imported.size, imported.imported, imported.exportable) == (page, True, True)
        first, second = vmm.map(va, [physical, imported], access="read_write")
        write(vmm, first.address, b"shared")
        assert read(vmm, second.address, 6) == b"shared"

    def test_what_is_no_exported_memory_is_refused(self, vmm: VirtualMemoryManager, page: int) -> None:
        private, shared = vmm.alloc_physical(page), vmm.alloc_physical(2 * page, exportable=True)
        with unchanged(vmm):
            with pytest.raises(errors.InvalidArgument):
                vmm.export_handle(private)
            fd = vmm.export_handle(shared)
            # What a descriptor does not tell, the driver knows that maps the memory.
            for size in (page, 4 * page):
                with (
                    pytest.raises(errors.InvalidArgument, match="another size"),
                    vmm.reserve(size) as va,
                    vmm.import_handle(fd, size) as wrong,
                ):
                    vmm.map(va, wrong)
            with pytest.raises(errors.InvalidSize):
                vmm.import_handle(fd, 0)
            os.close(fd)
            with open(os.devnull) as nothing:
                for bad in (-1, fd, nothing, 2**40, "fd", None):
                    with pytest.raises(errors.TensormemError):
                        vmm.import_handle(bad)  # type: ignore[arg-type]

    # --- Owners ---

    def test_objects_of_others_are_refused(self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int) -> None:
        physical = vmm.alloc_physical(page)
        with self.make() as other, other.reserve(page) as foreign_va, other.alloc_physical(page) as foreign:
            calls: list[Callable[[], object]] = [
                lambda: vmm.map(foreign_va, physical),
                lambda: vmm.map(va, foreign),
                lambda: vmm.map(va, [physical, foreign]),
                lambda: vmm.release(foreign_va),
                lambda: vmm.free_physical(foreign),
                lambda: vmm.map(va, 5),  # type: ignore[call-overload]
                lambda: vmm.map(5, physical),  # type: ignore[call-overload]
            ]
            with unchanged(vmm, va), unchanged(other, foreign_va):
                for call in calls:
                    with pytest.raises(errors.InvalidArgument):
                        call()

    def test_closing_the_manager_takes_everything_down(self, page: int) -> None:
        vmm = self.make()
        va, physical = vmm.reserve(4 * page), vmm.alloc_physical(page)
        mapping = vmm.map(va, physical, access="read_write")
        with vmm:
            adopted = vmm.mappings(va)[0].physical
        assert vmm.closed and va.released and physical.closed and adopted.closed and not mapping.is_live
        calls: list[Callable[[], object]] = [
            lambda: vmm.reserve(page),
            lambda: vmm.alloc_physical(page),
            lambda: vmm.map(va, physical),
            lambda: vmm.mappings(va),
            lambda: vmm.memory_info(),
            lambda: vmm.granularity(),
            lambda: mapping.unmap(),
            lambda: vmm.__enter__(),
        ]
        for call in calls:
            with pytest.raises(errors.UseAfterRelease):
                call()
        for again in (vmm, va, physical):
            again.close()
        assert "closed" in repr(vmm) and "released" in repr(va) and "freed" in repr(physical)

    def test_dropping_in_any_order_gives_everything_back(self, page: int) -> None:
        for order in itertools.permutations(range(4)):
            vmm = self.make()
            va, physical = vmm.reserve(4 * page), vmm.alloc_physical(page)
            counts = vmm.memory_info
            things: list[object] = [vmm, va, physical, vmm.map(va, physical, access="read_write")]
            del vmm, va, physical
            for place in order:
                things[place] = None
            gc.collect()
            held = counts()
            assert not any(held[name] for name in held if name not in _DEVICE_FACTS), order  # type: ignore[literal-required]

    def test_mapped_pages_outlive_the_names_of_everything_but_the_range(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        vmm.map(va, vmm.alloc_physical(page), access="read_write")
        gc.collect()
        write(vmm, va.base, b"alive")
        assert read(vmm, va.base, 5) == b"alive" and vmm.mappings(va)[0].physical.size == page

    def test_nothing_of_it_is_pickled_by_accident(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        things: list[Mapping | PhysicalAllocation | VirtualAddressRange] = [va, vmm.alloc_physical(page)]
        things.append(vmm.map(va, vmm.alloc_physical(page)))
        for thing in things:
            with pytest.raises(TypeError, match="cannot be pickled"):
                thing.__reduce__()

    # --- Threads ---

    def test_eight_threads_change_one_range_and_every_count_is_right(
        self, vmm: VirtualMemoryManager, va: VirtualAddressRange, page: int
    ) -> None:
        failures: list[BaseException] = []

        def churn(place: int) -> None:
            try:
                physical = vmm.alloc_physical(page)
                for step in range(40):
                    mapping = vmm.map(va, physical, 2 * place * page, access="read_write")
                    write(vmm, mapping.address, bytes([place, step]))
                    mapping = vmm.move(mapping, (2 * place + 1) * page)
                    assert read(vmm, mapping.address, 2) == bytes([place, step])
                    vmm.set_access(va, None, "read", offset=mapping.offset, size=page)
                    mapping.unmap()
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=churn, args=(place,)) for place in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == [] and vmm.mappings(va) == []
        assert vmm.memory_info()["mapped_bytes"] == 0
