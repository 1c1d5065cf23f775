"""Owns: what a piece of code allocates: `profiler` as a decorator and as a context, and the table of what was seen.

It counts through the `StatisticsResourceAdaptor` of the current resource. Must not know: how things are counted.
"""

import functools
import importlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, ParamSpec, Self, TypeVar

from tensormem import errors, units
from tensormem.construction import constructed_once
from tensormem.mr.current import get_current_device_resource
from tensormem.mr.resources import DeviceMemoryResource, Statistics, StatisticsResourceAdaptor

__all__ = ["MemoryRecord", "ProfilerRecords", "memory_stats", "profiler"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class MemoryRecord(NamedTuple):
    """What all calls of one name allocated: the bytes of all, the highest peak of one, and how often it ran.

    >>> MemoryRecord(100, 60, 2).calls
    2
    """

    total_bytes: int
    peak_bytes: int
    calls: int


@constructed_once
class ProfilerRecords:
    """What profilers saw, by name. Printing it gives a table, the hungriest first.

    >>> records = ProfilerRecords()
    >>> records.add("load", Statistics(0, 0, 60, 1, 100, 2))
    >>> records["load"].peak_bytes
    60
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, MemoryRecord] = {}

    def add(self, name: str, seen: Statistics) -> None:
        """Add what one call allocated."""
        with self._lock:
            before = self._records.get(name, MemoryRecord(0, 0, 0))
            self._records[name] = MemoryRecord(
                before.total_bytes + seen.total_bytes, max(before.peak_bytes, seen.peak_bytes), before.calls + 1
            )

    def __getitem__(self, name: str) -> MemoryRecord:
        with self._lock:
            return self._records[name]

    def items(self) -> list[tuple[str, MemoryRecord]]:
        """Names and records, the highest peak first."""
        with self._lock:
            return sorted(self._records.items(), key=lambda item: -item[1].peak_bytes)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._records.clear()

    def __str__(self) -> str:
        rows = [("calls", "peak", "total", "name")]
        for name, record in self.items():
            peak, total = units.format_size(record.peak_bytes), units.format_size(record.total_bytes)
            rows.append((str(record.calls), peak, total, name))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join(
            "  ".join([*(cell.rjust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]])
            for row in rows
        )


default_records = ProfilerRecords()


@constructed_once
class profiler:
    """Counts what the function or the `with` block allocates through the current resource's statistics.

    >>> import tensormem as tm
    >>> records = tm.mr.ProfilerRecords()
    >>> with tm.mr.use_resource(tm.mr.StatisticsResourceAdaptor(tm.mr.HostMemoryResource())) as mr:
    ...     with tm.mr.profiler(name="load", records=records):
    ...         mr.deallocate(mr.allocate(1000))
    >>> records["load"]
    MemoryRecord(total_bytes=1000, peak_bytes=1000, calls=1)
    """

    def __init__(self, *, name: str | None = None, records: ProfilerRecords | None = None) -> None:
        self._name = name
        self._records = default_records if records is None else records
        self._adaptors: list[StatisticsResourceAdaptor] = []

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        name = self._name or function.__qualname__

        @functools.wraps(function)
        def counted(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with profiler(name=name, records=self._records):
                return function(*args, **kwargs)

        return counted

    def __enter__(self) -> Self:
        if self._name is None:
            raise errors.InvalidArgument("as a context, profiler needs a name: profiler(name=...)")
        adaptor = find_statistics(get_current_device_resource())
        adaptor.push_counters()
        self._adaptors.append(adaptor)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._records.add(self._name or "", self._adaptors.pop().pop_counters())


def memory_stats(mr: DeviceMemoryResource | None = None) -> dict[str, int]:
    """Every counter of a resource, by name; without one, those of all memory that this process made, each byte once.

    >>> import tensormem as tm
    >>> tensor = tm.zeros(1000)
    >>> tm.memory_stats()["current_bytes"] >= 4000, tm.memory_stats(tm.mr.HostMemoryResource())["current_bytes"]
    (True, 0)
    """
    if mr is not None:
        return mr.counters
    # By name, and only when asked: what looks at everything stands far above.
    totals: dict[str, int] = importlib.import_module("tensormem.reports.live").memory_stats()
    return totals


def find_statistics(mr: DeviceMemoryResource) -> StatisticsResourceAdaptor:
    """The uppermost `StatisticsResourceAdaptor` of a stack."""
    each: DeviceMemoryResource | None = mr
    while each is not None:
        if isinstance(each, StatisticsResourceAdaptor):
            return each
        each = each.upstream_mr
    raise errors.InvalidArgument(
        f"nothing counts in {mr!r}; wrap it in a StatisticsResourceAdaptor and make that the current resource"
    )
