"""Owns: the checks of streams and events: order, times, host functions, and streams that somebody else made."""

from __future__ import annotations

import threading

from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import expect
from tensormem.streams import Event, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("streams", "Streams and events", gpu_only=False)
_TEMPTATION = 0.1


@GROUP.check
def order(subject: Subject) -> None:
    """What waits for an event runs behind it."""
    seen: list[str] = []
    gate = threading.Event()
    with Stream(subject.driver) as first, Stream(subject.driver) as second:
        first.launch(gate.wait)
        first.launch(seen.append, "first")
        event = first.record()
        expect(not event.done and not first.done, "an event is done before the work that it marks")
        second.wait(event)
        second.launch(seen.append, "second")
        gate.set()
        second.synchronize()
        event.synchronize()
        expect(event.done and second.done, "a stream that was waited for is not done")
    expect(seen == ["first", "second"], f"the order was {', '.join(seen) or 'nothing'}")


@GROUP.check
def order_of_copies(subject: Subject) -> None:
    """A copy behind an event takes the bytes that were written before it."""
    resource, gate = subject.leaf(), threading.Event()
    source, target = resource.allocate(4096), resource.allocate(4096)
    for block in (source, target):
        subject.driver.fill(block.ptr, 1, 1, (4096, 1, 1))
    subject.wait()
    with Stream(subject.driver) as first, Stream(subject.driver) as second:
        first.launch(gate.wait)
        subject.driver.fill(source.ptr, 2, 1, (4096, 1, 1), first)
        second.wait(first.record())
        subject.driver.copy(target.ptr, source.ptr, 4096, second)
        threading.Event().wait(_TEMPTATION)  # a copy that does not wait is done by now
        early = second.done
        gate.set()
        second.synchronize()
    expect(not early, "the copy did not wait")
    expect(subject.read(target.ptr, 4096) == b"\x02" * 4096, "the copy took the bytes from before")
    for block in (source, target):
        resource.deallocate(block)


@GROUP.check
def times(subject: Subject) -> None:
    """Two events tell the time between them."""
    with Stream(subject.driver) as stream:
        start, end = Event(subject.driver, timing=True), Event(subject.driver, timing=True)
        start.record(stream)
        stream.launch(threading.Event().wait, 0.02)
        end.record(stream)
        end.synchronize()
        seconds = end.seconds_since(start)
    expect(0.01 < seconds < 10, f"20 milliseconds were {seconds * 1000:.1f}")


@GROUP.check
def other_threads(subject: Subject) -> None:
    """A thread that never used the device can."""
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(subject.driver.memory_info()[1]))
    thread.start()
    thread.join()
    expect(len(seen) == 1, "it could not ask how much memory there is")


class _Foreign:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@GROUP.check
def foreign_streams(subject: Subject) -> None:
    """Work is queued on a stream that somebody else made and ends."""
    bare = subject.bare
    handle = bare.create_stream()
    resource = subject.leaf()
    block = resource.allocate(4096)
    subject.driver.fill(block.ptr, 7, 1, (4096, 1, 1), _Foreign(handle))
    bare.synchronize(handle)
    expect(subject.read(block.ptr, 4096) == b"\x07" * 4096, "the fill did not happen")
    resource.deallocate(block, _Foreign(handle))
    bare.destroy_stream(handle)
    resource.reap_pending()
    expect(resource.bytes_outstanding == 0, "memory freed on it is lost")


@GROUP.check
def ended_streams(subject: Subject) -> None:
    """A block that outlives a stream of somebody else is freed all the same."""
    bare = subject.bare
    handle = bare.create_stream()
    resource = subject.leaf()
    block = resource.allocate(4096, _Foreign(handle))
    bare.destroy_stream(handle)
    resource.deallocate(block)
    resource.reap_pending()
    expect(resource.bytes_outstanding == 0, "memory of a stream that ended is lost")
