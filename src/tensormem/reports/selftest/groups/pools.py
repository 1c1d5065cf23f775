"""Owns: the checks of stream-ordered memory."""

from __future__ import annotations

import time

from tensormem import errors, mr
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import expect
from tensormem.streams import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("pools", "Stream-ordered memory", "memory_pools")
_MIB = 1 << 20


@GROUP.check
def order(subject: Subject) -> None:
    """Memory is allocated, used and freed in the order of a stream."""
    resource = mr.GpuAsyncMemoryResource(subject.driver)
    with Stream(subject.driver) as stream:
        for number in range(1, 20):
            block = resource.allocate(_MIB, stream)
            subject.driver.fill(block.ptr, number, 1, (_MIB, 1, 1), stream)
            seen = subject.read(block.ptr, _MIB, stream)
            expect(seen == bytes([number]) * _MIB, "other bytes came back")
            resource.deallocate(block, stream)
        stream.synchronize()


@GROUP.check
def other_streams(subject: Subject) -> None:
    """Memory freed on one stream while another uses it is not handed out too early."""
    resource = mr.GpuAsyncMemoryResource(subject.driver)
    with Stream(subject.driver) as first, Stream(subject.driver) as second:
        block = resource.allocate(_MIB, first)
        second.wait(first.record())
        second.launch(time.sleep, 0.1)
        subject.driver.fill(block.ptr, 3, 1, (_MIB, 1, 1), second)
        resource.record_block_use(block, second)
        resource.deallocate(block, first)
        again = resource.allocate(_MIB, first)
        subject.driver.fill(again.ptr, 9, 1, (_MIB, 1, 1), first)
        seen = subject.read(again.ptr, _MIB, first)
        second.synchronize()
        expect(seen == b"\x09" * _MIB, "another stream wrote into memory that was handed out again")
        expect(subject.read(again.ptr, _MIB, first) == b"\x09" * _MIB, "another stream wrote into it afterwards")
        resource.deallocate(again, first)
        first.synchronize()


@GROUP.check
def nothing(subject: Subject) -> None:
    """Zero bytes are refused by name, whatever the driver would do."""
    resource = mr.GpuAsyncMemoryResource(subject.driver)
    try:
        resource.allocate(0)
    except errors.InvalidSize:
        return
    expect(False, "zero bytes were allocated")


@GROUP.check
def trimming(subject: Subject) -> None:
    """What the pool keeps is given back when asked."""
    resource = mr.GpuAsyncMemoryResource(subject.driver)
    with Stream(subject.driver) as stream:
        blocks = [resource.allocate(_MIB, stream) for _ in range(8)]
        for block in blocks:
            resource.deallocate(block, stream)
        stream.synchronize()
    resource.trim()
    expect(resource.bytes_outstanding == 0, f"{resource.bytes_outstanding} bytes are still out")
