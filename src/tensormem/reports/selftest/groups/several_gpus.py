"""Owns: the checks of copies between two GPUs: every kind of memory, and work that nobody else waits for."""

from __future__ import annotations

import time

from tensormem import mr
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import NotOffered, expect
from tensormem.streams import Stream
from tensormem.tensor import full
from tensormem.vmm import VirtualMemoryManager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("several GPUs", "Two GPUs")
_MIB = 1 << 20


def _places(subject: Subject) -> tuple[str, str]:
    return subject.where, f"{subject.driver.name}:{subject.other.device}"


@GROUP.check
def plain(subject: Subject) -> None:
    """A tensor moves from one GPU to the other and back."""
    here, there = _places(subject)
    source = full(_MIB, 17, "uint8", space=here)
    moved = source.to(there)
    back = moved.to(here, copy=True).to("main")
    expect(bytes(back) == b"\x11" * _MIB, "other bytes came back")


@GROUP.check
def work_of_others(subject: Subject) -> None:
    """A copy to the other GPU waits for work that somebody else queued on the source's default stream."""
    here, there = _places(subject)
    source = full(_MIB, 1, "uint8", space=here)
    source.wait()
    default = Stream.default(subject.driver)
    default.launch(time.sleep, 0.2)
    subject.driver.fill(source.ptr, 2, 1, (_MIB, 1, 1), default)
    moved = source.to(there).to("main")
    expect(bytes(moved) == b"\x02" * _MIB, "the copy took the bytes from before that work")


@GROUP.check
def pool_memory(subject: Subject) -> None:
    """Stream-ordered memory of one GPU is copied to the other."""
    if not subject.can("memory_pools"):
        raise NotOffered("the device has no memory pools")
    resource, target = mr.GpuAsyncMemoryResource(subject.driver), subject.leaf(subject.other)
    with Stream(subject.driver) as stream:
        block, copy = resource.allocate(_MIB, stream), target.allocate(_MIB)
        subject.driver.fill(block.ptr, 8, 1, (_MIB, 1, 1), stream)
        subject.driver.copy(copy.ptr, block.ptr, _MIB, stream)
        stream.synchronize()
        seen = subject.read(copy.ptr, _MIB, driver=subject.other)
        resource.deallocate(block, stream)
        stream.synchronize()
    target.deallocate(copy)
    expect(seen == b"\x08" * _MIB, "other bytes came over")


@GROUP.check
def mapped_memory(subject: Subject) -> None:
    """Mapped pages of one GPU are copied to the other."""
    if not subject.can("virtual_memory"):
        raise NotOffered("the device has no virtual memory")
    size, target = subject.driver.granularity()[1], subject.leaf(subject.other)
    with VirtualMemoryManager(subject.driver) as vmm:
        mapped = vmm.map(vmm.reserve(size), vmm.alloc_physical(size), 0, access="read_write")
        copy = target.allocate(size)
        subject.driver.fill(mapped.address, 12, 1, (size, 1, 1))
        subject.driver.copy(copy.ptr, mapped.address, size)
        subject.wait()
        seen = subject.read(copy.ptr, size, driver=subject.other)
        target.deallocate(copy)
    expect(seen == b"\x0c" * size, "other bytes came over")


@GROUP.check
def strided(subject: Subject) -> None:
    """A view with gaps moves to the other GPU."""
    here, there = _places(subject)
    source = full((64, 64), 5, "uint8", space=here)[:, ::2]
    expect(source.to(there).to("main").tolist() == [[5] * 32] * 64, "other bytes came over")


@GROUP.check
def streams_of_the_other(subject: Subject) -> None:
    """A stream of one GPU waits for an event of the other."""
    seen: list[str] = []
    with Stream(subject.driver) as first, Stream(subject.other) as second:
        first.launch(time.sleep, 0.1)
        first.launch(seen.append, "first")
        second.wait(first.record())
        second.launch(seen.append, "second")
        second.synchronize()
    expect(seen == ["first", "second"], f"the order was {', '.join(seen)}")
