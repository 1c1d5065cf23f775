"""Owns: the checks of allocations while a stream is captured into a graph: legal, or refused by name, and the capture
stays valid either way."""

from __future__ import annotations

import ctypes

from tensormem import errors, mr
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import NotOffered, expect
from tensormem.streams import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tensormem.reports.selftest.subject import Subject

GROUP = Group("capture", "Graphs that are captured")
_GLOBAL = 0  # the strictest mode: forbidden calls of every thread count
_MIB = 1 << 20


@GROUP.check
def nothing_of_ours(subject: Subject) -> None:
    """The driver captures a fill on a stream of tensormem's."""
    block = subject.leaf().allocate(_MIB)
    _capture(subject, lambda stream: subject.driver.fill(block.ptr, 1, 1, (_MIB, 1, 1), stream))


@GROUP.check
def pool_hits(subject: Subject) -> None:
    """Memory that a pool has already is allocated and freed without harm to a capture."""
    pool = mr.PoolMemoryResource(subject.leaf(), initial_pool_size=8 * _MIB)

    def work(stream: Stream) -> None:
        pool.deallocate(pool.allocate(4096, stream), stream)

    _capture(subject, work)


@GROUP.check
def growth(subject: Subject) -> None:
    """A pool that would have to grow does not make a capture invalid."""
    pool = mr.PoolMemoryResource(subject.leaf())

    def work(stream: Stream) -> None:
        pool.deallocate(pool.allocate(64 * 1024, stream), stream)

    _capture(subject, work)


@GROUP.check
def plain(subject: Subject) -> None:
    """Plain memory that is asked for and freed does not make a capture invalid."""
    resource = subject.leaf()

    def work(stream: Stream) -> None:
        resource.deallocate(resource.allocate(4096, stream), stream)

    _capture(subject, work)


def _capture(subject: Subject, work: Callable[[Stream], object]) -> None:
    """What tensormem refuses by name is its right; a capture that ended invalid is broken."""
    bare = subject.bare
    if not bare.has("begin_capture"):
        raise NotOffered("the library captures no streams")
    with Stream(subject.driver) as stream:
        handle, graph = ctypes.c_void_p(stream.handle), ctypes.c_void_p()
        bare.call("begin_capture", handle, _GLOBAL)
        trouble = ""
        try:
            work(stream)
        except (errors.StreamMisuse, errors.NotSupported):
            pass
        except errors.TensormemError as error:
            trouble = str(error)
        finally:
            answer = bare.answer("end_capture", handle, ctypes.byref(graph))
        if graph.value:
            bare.call("destroy_graph", graph)
        expect(
            answer == 0, f"the capture became invalid, its end answered {answer}; {trouble or 'nothing was refused'}"
        )
        expect(not trouble, f"it was not refused by name: {trouble}")
