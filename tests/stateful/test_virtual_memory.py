"""Random calls against a model: a dict of pages, each with the physical page behind it and its access."""

import ctypes
import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support.holdings import held
from tensormem import errors
from tensormem.vmm import Mapping, PhysicalAllocation, VirtualAddressRange, VirtualMemoryManager

PAGE = 4096
RANGE_PAGES = 12
FLAGS = ("none", "read", "read_write")


@dataclass(frozen=True)
class Behind:
    """What stands behind one page of addresses."""

    physical: int
    index: int
    access: str


@dataclass
class Allocation:
    handle: PhysicalAllocation | None  # None when its Python object was dropped
    pages: int
    content: list[bytes]
    closed: bool = False


class VirtualMemoryMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.vmm = VirtualMemoryManager()
        self.ranges: dict[int, VirtualAddressRange] = {}
        self.model: dict[tuple[int, int], Behind] = {}  # (range, page): what is there
        self.physicals: dict[int, Allocation] = {}
        self.mappings: list[tuple[Mapping, int]] = []
        self.count = 0

    # --- Making ---

    @precondition(lambda self: len(self.ranges) < 3)
    @rule()
    def reserve(self) -> None:
        self.count += 1
        self.ranges[self.count] = self.vmm.reserve(RANGE_PAGES * PAGE)

    @precondition(lambda self: len(self.physicals) < 5)
    @rule(pages=st.integers(1, 4), exportable=st.booleans())
    def make_pages(self, pages: int, exportable: bool) -> None:
        self.count += 1
        handle = self.vmm.alloc_physical(pages * PAGE, exportable=exportable, huge_pages=False)
        self.physicals[self.count] = Allocation(handle, pages, [b"\0" * 4] * pages)

    # --- Mapping ---

    @precondition(lambda self: self.ranges and self.physicals)
    @rule(data=st.data(), at=st.integers(0, RANGE_PAGES), access=st.sampled_from(FLAGS))
    def map(self, data: st.DataObject, at: int, access: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.ranges)))
        names = data.draw(st.lists(st.sampled_from(sorted(self.physicals)), min_size=1, max_size=3))
        chosen = [self.physicals[name] for name in names]
        if any(each.handle is None for each in chosen):
            return
        handles = [each.handle for each in chosen if each.handle is not None]
        places, place = [], at
        for name, each in zip(names, chosen, strict=True):
            places += [((number, place + i), Behind(name, i, access)) for i in range(each.pages)]
            place += each.pages
        call = partial(self.vmm.map, self.ranges[number], handles, at * PAGE, access=access)
        if place > RANGE_PAGES:
            refused(errors.InvalidOffset, call)
        elif any(key in self.model for key, _ in places):
            refused((errors.AlreadyMapped, errors.UseAfterRelease), call)
        elif any(each.closed for each in chosen):
            refused(errors.UseAfterRelease, call)
        else:
            self.mappings += [
                (mapping, number) for mapping in self.vmm.map(self.ranges[number], handles, at * PAGE, access=access)
            ]
            self.model.update(places)

    @precondition(lambda self: self.ranges)
    @rule(data=st.data(), at=st.integers(0, RANGE_PAGES - 1), pages=st.integers(1, 6))
    def unmap(self, data: st.DataObject, at: int, pages: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.ranges)))
        keys = [(number, place) for place in range(at, at + pages)]
        call = partial(self.vmm.unmap, self.ranges[number], at * PAGE, pages * PAGE)
        if at + pages > RANGE_PAGES:
            refused(errors.InvalidOffset, call)
        elif not all(key in self.model for key in keys):
            refused(errors.NotMapped, call)
        else:
            call()
            for key in keys:
                del self.model[key]

    @precondition(lambda self: self.ranges)
    @rule(data=st.data(), at=st.integers(0, RANGE_PAGES - 1), pages=st.integers(1, 6), access=st.sampled_from(FLAGS))
    def set_access(self, data: st.DataObject, at: int, pages: int, access: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.ranges)))
        keys = [(number, place) for place in range(at, min(at + pages, RANGE_PAGES))]
        size = len(keys) * PAGE
        call = partial(self.vmm.set_access, self.ranges[number], None, access, offset=at * PAGE, size=size)
        if all(key in self.model for key in keys):
            call()
            self.model.update({key: Behind(self.model[key].physical, self.model[key].index, access) for key in keys})
        else:
            refused(errors.NotMapped, call)

    @precondition(lambda self: self.mappings and self.ranges)
    @rule(data=st.data(), at=st.integers(0, RANGE_PAGES - 1))
    def move(self, data: st.DataObject, at: int) -> None:
        mapping, number = data.draw(st.sampled_from(self.mappings))
        target = data.draw(st.sampled_from(sorted(self.ranges)))
        pages = mapping.size // PAGE
        call = partial(self.vmm.move, mapping, at * PAGE, to=self.ranges[target])
        if number not in self.ranges:
            refused(errors.UseAfterRelease, call)
        elif not mapping.is_live:
            refused(errors.NotMapped, call)
        elif at + pages > RANGE_PAGES:
            refused(errors.InvalidOffset, call)
        elif any((target, at + i) in self.model for i in range(pages)):
            refused(errors.AlreadyMapped, call)
        else:
            self.mappings.append((call(), target))
            for i in range(pages):
                self.model[target, at + i] = self.model.pop((number, mapping.offset // PAGE + i))

    @precondition(lambda self: self.mappings)
    @rule(data=st.data())
    def leave_the_block_of_a_mapping(self, data: st.DataObject) -> None:
        mapping, number = data.draw(st.sampled_from(self.mappings))
        was_live = mapping.is_live
        keys = [(number, mapping.offset // PAGE + i) for i in range(mapping.size // PAGE)]
        if not was_live:
            return  # a part of it may be left, and the model does not say whose the rest is
        with mapping:
            pass
        for key in keys:
            del self.model[key]

    # --- Writing ---

    @precondition(lambda self: any(behind.access == "read_write" for behind in self.model.values()))
    @rule(data=st.data(), content=st.binary(min_size=4, max_size=4))
    def write(self, data: st.DataObject, content: bytes) -> None:
        writable = sorted(key for key, behind in self.model.items() if behind.access == "read_write")
        number, place = data.draw(st.sampled_from(writable))
        behind = self.model[number, place]
        ctypes.memmove(self.ranges[number].base + place * PAGE, content, 4)
        self.physicals[behind.physical].content[behind.index] = content

    # --- The end of things ---

    @precondition(lambda self: self.ranges)
    @rule(data=st.data(), how=st.sampled_from(["release", "close"]))
    def end_range(self, data: st.DataObject, how: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.ranges)))
        va, mapped = self.ranges[number], [key for key in self.model if key[0] == number]
        if how == "release" and mapped:
            refused(errors.StillMapped, lambda: self.vmm.release(va))
            return
        if how == "release":
            self.vmm.release(va)
        else:
            va.close()
        del self.ranges[number]
        for key in mapped:
            del self.model[key]

    @precondition(lambda self: self.physicals)
    @rule(data=st.data(), how=st.sampled_from(["free", "close", "drop"]))
    def end_pages(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.physicals)))
        each = self.physicals[name]
        if each.handle is None:
            return
        is_mapped = any(behind.physical == name for behind in self.model.values())
        if how == "free" and each.closed:
            refused(errors.UseAfterRelease, partial(self.vmm.free_physical, each.handle))
        elif how == "free" and is_mapped:
            refused(errors.StillMapped, partial(self.vmm.free_physical, each.handle))
        elif how == "free":
            self.vmm.free_physical(each.handle)
            each.closed = True
        elif how == "close":
            each.handle.close()
            each.closed = True
        else:
            each.handle = None
            self.mappings = [pair for pair in self.mappings if pair[0].is_live]
            gc.collect()

    # --- What always holds ---

    @invariant()
    def the_manager_says_what_the_model_says(self) -> None:
        if not hasattr(self, "vmm"):
            return
        for number, va in self.ranges.items():
            listed = {}
            for mapping in self.vmm.mappings(va):
                name = self.name_of(mapping)
                for i in range(mapping.size // PAGE):
                    behind = Behind(name, mapping.physical_offset // PAGE + i, str(mapping.access))
                    listed[number, mapping.offset // PAGE + i] = behind
            assert listed == {key: behind for key, behind in self.model.items() if key[0] == number}
        info = self.vmm.memory_info()
        assert info["mapped_bytes"] == len(self.model) * PAGE
        assert info["reserved_bytes"] == len(self.ranges) * RANGE_PAGES * PAGE

    def name_of(self, mapping: Mapping) -> int:
        known = {each.handle: name for name, each in self.physicals.items() if each.handle is not None}
        if mapping.physical in known:
            return known[mapping.physical]
        return self.model[self.number_of(mapping.range), mapping.offset // PAGE].physical  # its name was dropped

    def number_of(self, va: VirtualAddressRange) -> int:
        return next(number for number, each in self.ranges.items() if each is va)

    @invariant()
    def every_readable_page_shows_its_bytes(self) -> None:
        for (number, place), behind in getattr(self, "model", {}).items():
            if behind.access != "none":
                seen = ctypes.string_at(self.ranges[number].base + place * PAGE, 4)
                assert seen == self.physicals[behind.physical].content[behind.index]

    def teardown(self) -> None:
        if hasattr(self, "vmm"):
            self.vmm.close()
            assert all(va.released for va in self.ranges.values())


def refused(
    kind: type[errors.TensormemError] | tuple[type[errors.TensormemError], ...], call: Callable[[], object]
) -> None:
    with pytest.raises(kind):
        call()


def test_random_calls_agree_with_a_dict_of_pages_and_leave_nothing() -> None:
    before = held()
    options = settings(max_examples=25, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(VirtualMemoryMachine, settings=options)
    after = held()
    assert {**after, "descriptors": 0} == {**before, "descriptors": 0}
