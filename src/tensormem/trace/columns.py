"""Owns: events as columns of NumPy, for traces of millions: the same answers as event by event, much sooner.

NumPy is not needed: `available()` says whether it is here, and who asks has the slow way as well.
Must not know: what the answers are for.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from tensormem.trace.events import EventKind
from tensormem.trace.file import TraceFile
from tensormem.trace.format import KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Columns", "available"]

_ALLOCATE, _DEALLOCATE = 1, 2


@cache
def available() -> bool:
    """Whether NumPy can be imported."""
    return importlib.util.find_spec("numpy") is not None


def record_type() -> Any:
    """The records of a file as NumPy sees them; fields are called as in `Event`."""
    import numpy as np

    wide = ("time_ns", "address", "nbytes", "generation", "other", "stream")
    fields = [(name, "<u8") for name in wide] + [(name, "<u4") for name in ("resource", "tag", "stack")]
    return np.dtype([*fields, ("kind", "u1"), ("depth", "u1"), ("detail", "u1"), ("reserved", "u1")])


class Columns:
    """The events of a window of a file: `rows`, a structured array by time, and `threads`, as long.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> with tm.trace(path):
    ...     block = tm.mr.HostMemoryResource().allocate(1000)
    >>> rows = Columns(tm.trace.open(path).store).rows
    >>> rows["nbytes"][rows["kind"] == 1].tolist()
    [1000]
    """

    def __init__(self, file: TraceFile, start_ns: int = 0, end_ns: int = 2**64) -> None:
        import numpy as np

        kind = record_type()
        parts = [(thread, np.frombuffer(records, kind)) for thread, records in file.records(start_ns, end_ns)]
        rows = np.concatenate([np.empty(0, kind), *(part for _, part in parts)])
        threads = np.repeat([thread for thread, _ in parts], [len(part) for _, part in parts]).astype(np.uint32)
        times = np.ascontiguousarray(rows["time_ns"])
        inside = np.flatnonzero((times >= start_ns) & (times <= min(end_ns - 1, 2**64 - 1)))
        order = inside[np.argsort(times[inside], kind="stable")]
        if len(order) < len(rows) or bool((order[1:] < order[:-1]).any()):  # else everything is in its place already
            rows, threads = rows[order], threads[order]
        self.rows: NDArray[Any] = rows
        self.threads: NDArray[Any] = threads

    def census(self) -> tuple[Counter[EventKind], int]:
        """How many events there are of each kind, and how many threads they come from."""
        import numpy as np

        counts = np.bincount(self.rows["kind"], minlength=256).tolist()
        known = [KINDS.get(number) is not None for number in range(256)]
        threads = np.unique(self.threads[np.array(known)[self.rows["kind"]]]).tolist()
        kinds = Counter({kind: counts[number] for number, kind in KINDS.items() if counts[number]})
        return kinds, len(set(threads) - {0}) or 1

    def traffic_with_threads(self, resource: int | None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Allocations and deallocations that the program asked for, or those of one resource; and their threads."""
        kinds = self.rows["kind"]
        wanted = (kinds == _ALLOCATE) | (kinds == _DEALLOCATE)
        wanted &= (self.rows["depth"] == 0) if resource is None else (self.rows["resource"] == resource)
        return self.rows[wanted], self.threads[wanted]

    def traffic(self, *, every_layer: bool) -> NDArray[Any]:
        """Allocations and deallocations: what the program asked for, or all that passed any resource."""
        kinds = self.rows["kind"]
        wanted = (kinds == _ALLOCATE) | (kinds == _DEALLOCATE)
        found: NDArray[Any] = self.rows[wanted if every_layer else wanted & (self.rows["depth"] == 0)]
        return found


def block_keys(rows: NDArray[Any]) -> NDArray[Any]:
    """A number for the block that each row is about: the same for the same resource and generation, and no other."""
    import numpy as np

    generations, which = np.unique(rows["generation"], return_inverse=True)
    keys: NDArray[Any] = rows["resource"].astype(np.uint64) * np.uint64(len(generations)) + which.astype(np.uint64)
    return keys


def known_only(rows: NDArray[Any]) -> NDArray[Any]:
    """Without the ends of blocks whose beginning is not among them."""
    import numpy as np

    blocks = block_keys(rows)
    begins = rows["kind"] == _ALLOCATE
    known: NDArray[Any] = rows[begins | np.isin(blocks, blocks[begins])]
    return known


def running_sums(
    rows: NDArray[Any], name_of: Callable[[int, int], str]
) -> dict[str, tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """By the name that a (resource, tag) has: times, and the bytes and blocks that are out after each."""
    import numpy as np

    pairs = (rows["resource"].astype(np.uint64) << np.uint64(32)) | rows["tag"]
    found, which = np.unique(pairs, return_inverse=True)
    names = [name_of(int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in found]
    distinct = sorted(set(names))
    groups = np.array([distinct.index(name) for name in names], dtype=np.intp)[which]
    begins = rows["kind"] == _ALLOCATE
    signed = np.where(begins, 1, -1)
    sums = {}
    for number, name in enumerate(distinct):
        mine = groups == number
        nbytes = rows["nbytes"][mine].astype(np.int64) * signed[mine]
        sums[name] = rows["time_ns"][mine], np.cumsum(nbytes), np.cumsum(signed[mine])
    return sums
