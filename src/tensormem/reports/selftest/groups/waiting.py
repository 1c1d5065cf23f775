"""Owns: the checks of calls that wait for the device while Python has work to do there: none may keep Python from it.

Host functions of these streams are Python, and need the interpreter: a call that waits for the device and holds the
GIL never returns, and the time limit of the group tells. Real drivers wait in frees, in unpinning and in full queues.
"""

from __future__ import annotations

import ctypes
import mmap
import time

from tensormem import mr
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import expect
from tensormem.streams import Stream
from tensormem.tensor import full

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("waiting", "Calls that wait for the device", gpu_only=False)
_PAUSE = 0.2
_MIB = 1 << 20


def _busy(stream: Stream) -> None:
    for _ in range(2):
        stream.launch(time.sleep, _PAUSE)


@GROUP.check
def frees(subject: Subject) -> None:
    """A free returns while a host function is queued, for small and large blocks."""
    resource = subject.leaf()
    for nbytes in (4096, 4 * _MIB):
        block = resource.allocate(nbytes)
        with Stream(subject.driver) as stream:
            _busy(stream)
            resource.deallocate(block)
            resource.deallocate(resource.allocate(nbytes))


@GROUP.check
def unpinning(subject: Subject) -> None:
    """Unpinning returns while a host function is queued."""
    with mmap.mmap(-1, _MIB) as memory, Stream(subject.driver) as stream:
        view = (ctypes.c_char * _MIB).from_buffer(memory)
        try:
            subject.driver.pin(ctypes.addressof(view), _MIB)
            _busy(stream)
            subject.driver.unpin(ctypes.addressof(view), _MIB)
        finally:
            del view


@GROUP.check
def pinned_frees(subject: Subject) -> None:
    """Pinned memory is freed while a host function is queued."""
    resource = mr.PinnedMemoryResource(None if subject.platform is None else subject.driver)
    block = resource.allocate(_MIB)
    with Stream(subject.driver) as stream:
        _busy(stream)
        resource.deallocate(block)


@GROUP.check
def questions(subject: Subject) -> None:
    """Recording, asking and waiting for events return while a host function is queued."""
    with Stream(subject.driver) as stream, Stream(subject.driver) as other:
        _busy(stream)
        event = stream.record()
        other.wait(event)
        subject.driver.memory_info()
        while not event.done:
            time.sleep(0.01)
        other.synchronize()


@GROUP.check
def copies(subject: Subject) -> None:
    """A copy of pageable memory behind a host function that waits is done in the end."""
    source = full(_MIB, 5, "uint8")
    with Stream(subject.driver) as stream, Stream(subject.driver) as beside:
        _busy(beside)
        _busy(stream)
        there = source.to(subject.space, stream=stream, copy=True)
        back = there.to("main", stream=stream, copy=True)
        back.wait()
        expect(bytes(back) == bytes(source), "other bytes came back")


@GROUP.check
def full_queues(subject: Subject) -> None:
    """Thousands of pieces of work are queued behind a host function that waits."""
    resource = subject.leaf()
    block = resource.allocate(4096)
    with Stream(subject.driver) as stream:
        _busy(stream)
        for number in range(3000):
            subject.driver.fill(block.ptr, number & 0xFF, 1, (4096, 1, 1), stream)
        stream.synchronize()
    expect(subject.read(block.ptr, 1) == bytes([2999 & 0xFF]), "the last piece of work is not the last")
    resource.deallocate(block)
