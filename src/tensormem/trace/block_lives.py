"""Owns: `BlockLife`, one block from its allocation to its end, and the two ways to find the blocks of a trace: event by
event, and by columns of NumPy, which is several times as fast and gives the same.

Must not know: windows and peaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tensormem.trace.columns import Columns, block_keys
from tensormem.trace.definitions import Names
from tensormem.trace.events import Event, EventKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BlockLife", "lives_by_column", "lives_by_event"]

_ALLOCATE = 1


class BlockLife(NamedTuple):
    """One block from its allocation to its end. `start_ns` is None when that was before the trace, `end_ns` when it was
    never given back; `lower` and `upper` count allocations and deallocations.

    >>> BlockLife(1, 1, "main", "weights", 4096, 64, 0, 1, 0, 10, None, 0, 2).end_ns is None
    True
    """

    generation: int
    resource: int
    space: str
    tag: str
    address: int
    nbytes: int
    stream: int
    thread: int
    stack: int
    start_ns: int | None
    end_ns: int | None
    lower: int
    upper: int


def lives_by_event(traffic: Iterator[Event], names: Names) -> Iterator[BlockLife]:
    """The blocks that allocations and deallocations tell of: first those that ended, by their ends, then the others."""
    live: dict[tuple[int, int], tuple[int, Event]] = {}
    order = 0
    for event in traffic:
        key = event.resource, event.generation
        if event.kind is EventKind.ALLOCATE:
            live[key] = order, event
        else:
            lower, begun = live.pop(key, (0, None))
            yield _life(names, begun or event, begun, event, lower, order)
        order += 1
    for lower, begun in live.values():
        yield _life(names, begun, begun, None, lower, order)


def _life(names: Names, fact: Event, begun: Event | None, ended: Event | None, lower: int, upper: int) -> BlockLife:
    return BlockLife(
        fact.generation,
        fact.resource,
        names.space(fact.resource),
        fact.tag,
        fact.address,
        fact.nbytes,
        fact.stream,
        fact.thread,
        fact.stack,
        None if begun is None else begun.time_ns,
        None if ended is None else ended.time_ns,
        lower,
        upper,
    )


def lives_by_column(columns: Columns, names: Names, resource: int | None) -> Iterator[BlockLife] | None:
    """The same, from columns; None when a block is allocated or given back twice, which only the slow way can tell."""
    rows, threads = columns.traffic_with_threads(resource)
    paired = _pair(rows)
    if paired is None:
        return None
    facts, begun, ended = paired
    found = rows[facts]
    spaces = {number: names.space(number) for number in set(found["resource"].tolist())}
    tags = {number: names.tags.get(number) or f"tag {number}" for number in set(found["tag"].tolist())} | {0: ""}
    fields = zip(
        found["generation"].tolist(),
        found["resource"].tolist(),
        map(spaces.__getitem__, found["resource"].tolist()),
        map(tags.__getitem__, found["tag"].tolist()),
        found["address"].tolist(),
        found["nbytes"].tolist(),
        found["stream"].tolist(),
        threads[facts].tolist(),
        found["stack"].tolist(),
        _times(rows, begun),
        _times(rows, ended),
        begun.clip(0).tolist(),
        _upper(ended, len(rows)),
        strict=True,
    )
    # Without a call of Python for each.
    return map(partial(tuple.__new__, BlockLife), fields)


def _pair(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """For every block the row that tells of it, that of its beginning and that of its end; -1 where there is none."""
    import numpy as np

    keys = block_keys(rows)
    begins = rows["kind"] == _ALLOCATE
    starts, ends = np.flatnonzero(begins), np.flatnonzero(~begins)
    by_key = starts[np.argsort(keys[starts], kind="stable")]
    start_keys, end_keys = keys[by_key], keys[ends]
    twice = len(np.unique(end_keys)) != len(end_keys) or bool((start_keys[1:] == start_keys[:-1]).any())
    if twice:
        return None
    places = np.searchsorted(start_keys, end_keys)
    known = places < len(by_key)
    known[known] = start_keys[places[known]] == end_keys[known]
    begun = np.full(len(ends), -1, dtype=np.int64)
    begun[known] = by_key[places[known]]
    if (begun > ends).any():  # given back before it was allocated
        return None
    is_open = np.ones(len(rows), dtype=bool)
    is_open[begun[known]] = False
    left = starts[is_open[starts]]
    facts = np.concatenate([np.where(known, begun, ends), left])
    return facts, np.concatenate([begun, left]), np.concatenate([ends, np.full(len(left), -1, dtype=np.int64)])


def _times(rows: NDArray[Any], places: NDArray[Any]) -> list[int | None]:
    times: list[int | None] = rows["time_ns"][places].tolist() if len(rows) else []
    for missing in (places < 0).nonzero()[0].tolist():
        times[missing] = None
    return times


def _upper(ended: NDArray[Any], count: int) -> list[int]:
    upper = ended.copy()
    upper[upper < 0] = count
    found: list[int] = upper.tolist()
    return found
