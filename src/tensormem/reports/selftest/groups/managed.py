"""Owns: the checks of managed memory."""

from __future__ import annotations

import ctypes

from tensormem import mr
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import NotOffered, expect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("managed", "Managed memory", "managed_memory")
_MIB = 1 << 20


@GROUP.check
def both_sides(subject: Subject) -> None:
    """The CPU and the device see the same bytes, one after the other."""
    resource = mr.ManagedMemoryResource(subject.driver)
    block = resource.allocate(_MIB)
    ctypes.memset(block.ptr, 1, _MIB)
    expect(subject.read(block.ptr, _MIB) == b"\x01" * _MIB, "the device sees other bytes than the CPU wrote")
    subject.driver.fill(block.ptr, 2, 1, (_MIB, 1, 1))
    subject.wait()
    expect(ctypes.string_at(block.ptr, _MIB) == b"\x02" * _MIB, "the CPU sees other bytes than the device wrote")
    resource.deallocate(block)


@GROUP.check
def prefetch(subject: Subject) -> None:
    """Bytes are moved ahead, and advice is taken, where the CPU and the device may use them at once."""
    if not subject.can("concurrent_managed_access"):
        raise NotOffered("the device has no concurrent managed access")
    resource = mr.ManagedMemoryResource(subject.driver)
    block = resource.allocate(_MIB)
    for advice in ("read_mostly", "preferred_location", "accessed_by"):
        subject.driver.advise(block.ptr, _MIB, advice)
        subject.driver.advise(block.ptr, _MIB, advice, unset=True)
    subject.driver.prefetch(block.ptr, _MIB)
    subject.wait()
    subject.driver.prefetch(block.ptr, _MIB, -1)
    subject.wait()
    resource.deallocate(block)
