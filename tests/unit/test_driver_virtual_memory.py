"""Raw virtual memory of the host driver: real pages, every refusal with nothing changed, sharing by descriptor."""

import ctypes
import os
from collections.abc import Callable, Iterator

import pytest

from support.holdings import held, nothing_left_behind
from support.python_processes import run_python
from support.residency import resident_bytes
from tensormem import errors
from tensormem.drivers import host

PAGE = host().granularity()[0]
HUGE = host().granularity()[1]
MIB = 1 << 20


@pytest.fixture
def window() -> Iterator[int]:
    """64 MiB of addresses without memory, given back at the end with nothing left behind."""
    with nothing_left_behind():
        address = host().reserve(64 * MIB, HUGE)
        yield address
        host().release(address, 64 * MIB)


def mapped(address: int, size: int, physical: int, access: str = "read_write") -> None:
    host().map(address, size, physical)
    host().set_access(address, size, access)


def test_pages_are_zeroed_hold_what_is_written_and_come_and_go(window: int) -> None:
    physical = host().physical_create(32 * MIB)
    mapped(window, 32 * MIB, physical)
    assert ctypes.string_at(window, 32 * MIB).count(0) == 32 * MIB
    ctypes.memset(window, 0x5A, 32 * MIB)
    assert resident_bytes(window, 64 * MIB) == 32 * MIB
    host().unmap(window, 32 * MIB)
    assert resident_bytes(window, 64 * MIB) == 0
    mapped(window + 32 * MIB, 32 * MIB, physical)
    assert set(ctypes.string_at(window + 32 * MIB, 32 * MIB)) == {0x5A}
    host().unmap(window + 32 * MIB, 32 * MIB)
    host().physical_destroy(physical)


def test_addresses_cost_no_memory() -> None:
    with nothing_left_behind():
        address = host().reserve("128GiB", 2**30)
        assert address % 2**30 == 0
        assert resident_bytes(address, 128 * 2**30) == 0
        host().release(address, "128GiB")


def test_physical_memory_tells_what_it_is() -> None:
    with nothing_left_behind():
        plain, shared = host().physical_create(PAGE), host().physical_create(HUGE, exportable=True)
        assert host().physical_info(plain) == {
            "size": PAGE,
            "device": 0,
            "exportable": False,
            "huge_pages": False,
            "imported": False,
        }
        assert host().physical_info(shared)["exportable"]
        assert held()["committed_bytes"] >= PAGE + HUGE
        host().physical_destroy(plain)
        host().physical_destroy(shared)


def test_two_addresses_may_show_the_same_memory(window: int) -> None:
    physical = host().physical_create(HUGE)
    mapped(window, HUGE, physical)
    mapped(window + 8 * MIB, HUGE, physical)
    ctypes.memset(window, 0x77, 100)
    assert ctypes.string_at(window + 8 * MIB, 100) == b"\x77" * 100
    host().unmap(window, HUGE)
    host().unmap(window + 8 * MIB, HUGE)
    host().physical_destroy(physical)


def test_destroyed_memory_lives_as_long_as_it_is_mapped(window: int) -> None:
    physical = host().physical_create(HUGE)
    mapped(window, HUGE, physical)
    host().physical_destroy(physical)
    ctypes.memset(window, 1, HUGE)
    assert held()["physicals"] > 0
    with pytest.raises(errors.InvalidArgument):
        host().physical_info(physical)
    host().unmap(window, HUGE)


def test_a_part_of_physical_memory_can_be_mapped_and_a_part_of_a_mapping_unmapped(window: int) -> None:
    physical = host().physical_create(4 * PAGE, huge_pages=False)
    mapped(window, 4 * PAGE, physical)
    for page in range(4):
        ctypes.memset(window + page * PAGE, page + 1, PAGE)
    host().unmap(window + PAGE, 2 * PAGE)
    host().map(window + PAGE, PAGE, physical, 3 * PAGE)
    host().set_access(window + PAGE, PAGE, "read")
    assert [ctypes.string_at(window + page * PAGE, 1)[0] for page in (0, 1, 3)] == [1, 4, 4]
    for page in (0, 1, 3):
        host().unmap(window + page * PAGE, PAGE)
    host().physical_destroy(physical)


def test_memory_goes_to_another_process_by_descriptor_and_back(window: int) -> None:
    physical = host().physical_create(HUGE, exportable=True)
    mapped(window, HUGE, physical)
    ctypes.memset(window, 0x21, HUGE)
    descriptor = host().physical_export(physical)
    again = host().physical_import(descriptor)
    assert host().physical_info(again)["imported"]
    os.close(descriptor)
    mapped(window + 8 * MIB, HUGE, again)
    ctypes.memset(window + 8 * MIB, 0x42, 10)
    assert ctypes.string_at(window, 11) == b"\x42" * 10 + b"\x21"
    host().unmap(window, HUGE)
    host().unmap(window + 8 * MIB, HUGE)
    host().physical_destroy(again)
    host().physical_destroy(physical)


# --- Refusals change nothing ---


def refusals(window: int, physical: int) -> dict[str, tuple[type[Exception], Callable[[], object]]]:
    driver = host()
    return {
        "reserve nothing": (errors.InvalidSize, lambda: driver.reserve(0)),
        "reserve a part of a page": (errors.InvalidAlignment, lambda: driver.reserve(PAGE + 1)),
        "reserve everything": (errors.OutOfVirtualMemory, lambda: driver.reserve(2**62)),
        "reserve crookedly": (errors.InvalidAlignment, lambda: driver.reserve(PAGE, 3)),
        "reserve at no alignment": (errors.InvalidAlignment, lambda: driver.reserve(PAGE, 0)),
        "reserve at a negative alignment": (errors.InvalidAlignment, lambda: driver.reserve(PAGE, -4096)),
        "reserve potatoes": (errors.InvalidSize, lambda: driver.reserve("12 potatoes")),
        "create nothing": (errors.InvalidSize, lambda: driver.physical_create(0)),
        "create a part of a page": (errors.InvalidAlignment, lambda: driver.physical_create(PAGE - 1)),
        "create too much": (errors.OutOfPhysicalMemory, lambda: driver.physical_create(2**50)),
        "create elsewhere": (errors.InvalidArgument, lambda: driver.physical_create(PAGE, 1)),
        "map nothing": (errors.InvalidSize, lambda: driver.map(window, 0, physical)),
        "map crookedly": (errors.InvalidAlignment, lambda: driver.map(window + 1, PAGE, physical)),
        "map from a crooked offset": (errors.InvalidAlignment, lambda: driver.map(window, PAGE, physical, 1)),
        "map too much": (errors.InvalidOffset, lambda: driver.map(window, 2 * HUGE, physical)),
        "map from beyond": (errors.InvalidOffset, lambda: driver.map(window, PAGE, physical, HUGE)),
        "map outside": (errors.InvalidArgument, lambda: driver.map(window + 64 * MIB, PAGE, physical)),
        "map across the end": (errors.InvalidArgument, lambda: driver.map(window + 63 * MIB, 2 * MIB, physical)),
        "map no memory": (errors.InvalidArgument, lambda: driver.map(window, PAGE, 10**9)),
        "map over a mapping": (errors.AlreadyMapped, lambda: driver.map(window + 8 * MIB, PAGE, physical)),
        "unmap a hole": (errors.NotMapped, lambda: driver.unmap(window, PAGE)),
        "unmap more than there is": (errors.NotMapped, lambda: driver.unmap(window + 8 * MIB, 2 * HUGE)),
        "unmap outside": (errors.InvalidArgument, lambda: driver.unmap(window - PAGE, PAGE)),
        "access to a hole": (errors.NotMapped, lambda: driver.set_access(window, PAGE, "read")),
        "access of an unknown kind": (
            errors.InvalidArgument,
            lambda: driver.set_access(window + 8 * MIB, PAGE, "scribble"),
        ),
        "access elsewhere": (errors.InvalidArgument, lambda: driver.set_access(window + 8 * MIB, PAGE, "read", 5)),
        "release while mapped": (errors.StillMapped, lambda: driver.release(window, 64 * MIB)),
        "release a part": (errors.InvalidArgument, lambda: driver.release(window, 32 * MIB)),
        "release a stranger": (errors.InvalidArgument, lambda: driver.release(window + PAGE, PAGE)),
        "destroy a stranger": (errors.InvalidArgument, lambda: driver.physical_destroy(10**9)),
        "describe a stranger": (errors.InvalidArgument, lambda: driver.physical_info(0)),
        "export what is not exportable": (errors.TensormemError, lambda: driver.physical_export(physical)),
        "import no descriptor": (errors.TensormemError, lambda: driver.physical_import(-1)),
        "import a pipe": (errors.TensormemError, lambda: import_of_a_pipe()),
        "import a file": (errors.TensormemError, lambda: import_of_a_file()),
    }


def import_of_a_pipe() -> object:
    ends = os.pipe()
    try:
        return host().physical_import(ends[0])
    finally:
        for end in ends:
            os.close(end)


def import_of_a_file() -> object:
    with open(__file__) as file:
        return host().physical_import(file.fileno())


@pytest.mark.parametrize("name", refusals(0, 0))
def test_what_cannot_be_is_refused_and_changes_nothing(name: str, window: int) -> None:
    physical = host().physical_create(HUGE)
    mapped(window + 8 * MIB, HUGE, physical)
    ctypes.memset(window + 8 * MIB, 0x11, HUGE)
    error, call = refusals(window, physical)[name]
    before = held()
    with pytest.raises(error):
        call()
    assert held() == before
    assert set(ctypes.string_at(window + 8 * MIB, HUGE)) == {0x11}
    host().unmap(window + 8 * MIB, HUGE)
    host().physical_destroy(physical)


def test_refusals_carry_the_facts(window: int) -> None:
    physical = host().physical_create(HUGE)
    host().map(window + 8 * MIB, HUGE, physical)
    with pytest.raises(errors.AlreadyMapped) as overlap:
        host().map(window + 8 * MIB - PAGE, 2 * PAGE, physical)
    assert (overlap.value.offset, overlap.value.size) == (8 * MIB, HUGE)
    with pytest.raises(errors.NotMapped) as hole:
        host().unmap(window + 8 * MIB, 2 * HUGE)
    assert (hole.value.offset, hole.value.size) == (8 * MIB + HUGE, HUGE)
    with pytest.raises(errors.StillMapped) as still:
        host().release(window, 64 * MIB)
    assert (still.value.address, still.value.mappings) == (window, 1)
    host().unmap(window + 8 * MIB, HUGE)
    host().physical_destroy(physical)


@pytest.mark.parametrize(
    ("access", "touch", "faults"),
    [
        ("none", "ctypes.string_at(address, 1)", True),
        ("read", "ctypes.string_at(address, 1)", False),
        ("read", "ctypes.memset(address, 1, 1)", True),
        ("read_write", "ctypes.memset(address, 1, 1)", False),
    ],
)
def test_a_denied_access_faults_for_real(access: str, touch: str, faults: bool) -> None:
    result = run_python(
        f"""
        import ctypes
        from tensormem.drivers import host
        page = host().granularity()[0]
        address, physical = host().reserve(page), host().physical_create(page)
        host().map(address, page, physical)
        if {access!r} != "none":
            host().set_access(address, page, {access!r})
        {touch}
        """
    )
    assert (result.returncode < 0) == faults, result.stderr
