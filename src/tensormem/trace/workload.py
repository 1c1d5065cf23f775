"""Owns: what a trace asks of memory: its blocks by name, in order, and the stream that each was on.

Bytes of one space never stand in for those of another, so whoever judges asks space by space.
Must not know: what is done with them: a replay, a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensormem.errors import InvalidArgument
from tensormem.spaces import LogicalMemorySpace
from tensormem.trace.lifetimes import Lifetime

if TYPE_CHECKING:
    from tensormem.spaces.words import SpaceLike
    from tensormem.trace.block_lives import BlockLife
    from tensormem.trace.trace import Trace

__all__ = ["Workload", "workload_of", "workloads_by_space"]


class Workload(NamedTuple):
    """Blocks in the order of their beginnings, and a number of a stream for each; None when all are on one.

    >>> Workload([Lifetime("a", 0, 4, 16)]).streams is None
    True
    """

    lifetimes: list[Lifetime]
    streams: list[int] | None = None


def workload_of(trace: Trace, space: SpaceLike | None = None) -> Workload:
    """The blocks that the program asked for, in one space or in all; a file of lifetimes keeps its ids.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> mr = tm.mr.HostMemoryResource()
    >>> with tm.trace(path):
    ...     mr.deallocate(mr.allocate(1000, tag="weights"))
    >>> workload_of(tm.trace.open(path)).lifetimes
    [Lifetime(id='weights #0', lower=0, upper=1, size=1000)]
    """
    if trace.format == "lifetimes":
        return Workload(trace.lifetimes())
    wanted = None if space is None else str(LogicalMemorySpace.parse(space))
    lives = [life for life in trace.blocks() if _is_of(life, wanted)]
    lives.sort(key=lambda life: (life.lower, life.generation))
    named = [_named(number, life) for number, life in enumerate(lives)]
    return Workload(named, [life.stream for life in lives])


def workloads_by_space(trace: Trace) -> dict[str, Workload]:
    """The blocks that the program asked for, space by space, by name; "" for a file of lifetimes, which knows of none.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> mr = tm.mr.HostMemoryResource()
    >>> with tm.trace(path):
    ...     mr.deallocate(mr.allocate(1000, tag="weights"))
    >>> list(workloads_by_space(tm.trace.open(path)))
    ['main']
    """
    if trace.format == "lifetimes":
        return {"": workload_of(trace)}
    spaces = sorted({life.space for life in trace.blocks() if _is_of(life, None)})
    return {space: workload_of(trace, space) for space in spaces}


def workload_of_one(trace: Trace, space: str | None) -> tuple[str, Workload]:
    """The blocks of `space`, or of the only space there is, with its name; `InvalidArgument` when there are several."""
    if space is not None:
        return space, workload_of(trace, space)
    found = workloads_by_space(trace)
    if len(found) > 1:
        raise InvalidArgument(
            f"the trace has blocks in {', '.join(found)}, which are judged one by one: name the space"
        )
    return next(iter(found.items()), ("", Workload([])))


def _is_of(life: BlockLife, space: str | None) -> bool:
    # One that was given back by the very event that told of it lived for no moment of this trace.
    return life.upper > life.lower and life.nbytes > 0 and space in (None, life.space)


def _named(number: int, life: BlockLife) -> Lifetime:
    return Lifetime(f"{life.tag or 'untagged'} #{number}", life.lower, life.upper, life.nbytes)
