"""Owns: what a trace asks of memory: its blocks by name, in order, and the stream that each was on.

Must not know: what is done with them: a replay, a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensormem.spaces import LogicalMemorySpace
from tensormem.trace.lifetimes import Lifetime

if TYPE_CHECKING:
    from tensormem.spaces.words import SpaceLike
    from tensormem.trace.block_lives import BlockLife
    from tensormem.trace.trace import Trace

__all__ = ["Workload", "workload_of"]


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


def _is_of(life: BlockLife, space: str | None) -> bool:
    # One that was given back by the very event that told of it lived for no moment of this trace.
    return life.upper > life.lower and life.nbytes > 0 and space in (None, life.space)


def _named(number: int, life: BlockLife) -> Lifetime:
    return Lifetime(f"{life.tag or 'untagged'} #{number}", life.lower, life.upper, life.nbytes)
