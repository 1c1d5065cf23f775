"""Owns: the checks of plain and pinned memory: bytes there and back, fills, boxes, pinning, and a shortage."""

from __future__ import annotations

import ctypes
import mmap

from tensormem import errors, mr
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import expect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("memory", "Plain and pinned memory, fills and copies", gpu_only=False)
_MIB = 1 << 20
_PATTERN = bytes(range(256)) * 4096
_VALUES = {1: 0xAB, 2: 0x1234, 4: 0xDEADBEEF, 8: 0x0102030405060708}


@GROUP.check
def round_trip(subject: Subject) -> None:
    """Bytes come back as they went."""
    resource = subject.leaf()
    block = resource.allocate(_MIB)
    subject.write(block.ptr, _PATTERN)
    expect(subject.read(block.ptr, _MIB) == _PATTERN, "other bytes came back")
    resource.deallocate(block)


@GROUP.check
def fills(subject: Subject) -> None:
    """Elements of 1, 2, 4 and 8 bytes fill memory from end to end."""
    resource = subject.leaf()
    block = resource.allocate(4096)
    for width, value in _VALUES.items():
        subject.driver.fill(block.ptr, value, width, (4096, 1, 1))
        expected = value.to_bytes(width, "little") * (4096 // width)
        expect(subject.read(block.ptr, 4096) == expected, f"a fill by {width} bytes left others")
    resource.deallocate(block)


@GROUP.check
def boxes(subject: Subject) -> None:
    """Boxes of rows and planes are filled and copied, and nothing between them."""
    resource, target = subject.leaf(), ctypes.create_string_buffer(65536)
    block = resource.allocate(65536)
    address, driver = ctypes.addressof(target), subject.driver
    for width, value in _VALUES.items():
        driver.fill(block.ptr, 0, 1, (65536, 1, 1))
        driver.fill(block.ptr, value, width, (48, 5, 3), pitch=64, plane=1024)
        driver.copy_pitched(address, 128, block.ptr, 64, (64, 5, 3), destination_plane=4096, source_plane=1024)
        driver.copy_pitched(address + 32768, 128, block.ptr, 64, (64, 5, 1))
        subject.wait()
        row = value.to_bytes(width, "little") * (48 // width) + bytes(16)
        starts = [plane * 4096 + line * 128 for plane in (0, 1, 2, 8) for line in range(5)]
        wrong = [start for start in starts if target.raw[start : start + 64] != row]
        expect(not wrong, f"rows at {wrong} are wrong after a fill by {width} bytes")
    resource.deallocate(block)


@GROUP.check
def pinned(subject: Subject) -> None:
    """Pinned memory is allocated, copied through and freed."""
    resource = mr.PinnedMemoryResource(None if subject.platform is None else subject.driver)
    block, other = resource.allocate(_MIB), subject.leaf()
    memory = other.allocate(_MIB)
    ctypes.memmove(block.ptr, _PATTERN, _MIB)
    subject.driver.copy(memory.ptr, block.ptr, _MIB)
    subject.wait()
    expect(subject.read(memory.ptr, _MIB) == _PATTERN, "other bytes came back")
    other.deallocate(memory)
    resource.deallocate(block)


@GROUP.check
def registration(subject: Subject) -> None:
    """Memory of somebody else is pinned and let go."""
    with mmap.mmap(-1, _MIB) as memory:
        view = (ctypes.c_char * _MIB).from_buffer(memory)
        try:
            subject.driver.pin(ctypes.addressof(view), _MIB)
            subject.driver.unpin(ctypes.addressof(view), _MIB)
        finally:
            del view


@GROUP.check
def shortage(subject: Subject) -> None:
    """More memory than there is gets an OutOfMemory with the facts, and the device works afterwards."""
    resource = subject.leaf()
    try:
        resource.allocate(1 << 50)
    except errors.OutOfMemory as refusal:
        expect(refusal.requested == 1 << 50, f"it says that {refusal.requested} bytes were asked for")
    else:
        expect(False, "a pebibyte was allocated")
    resource.deallocate(resource.allocate(_MIB))
