"""Owns: statistics and the profiler by RMM's names. Must not know: how things are counted."""

import inspect
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from types import TracebackType
from typing import Literal, ParamSpec, TypeVar

from tensormem import errors
from tensormem.mr import Statistics
from tensormem.public_functions import explain_misspellings
from tensormem.rmm import mr

__all__ = [
    "ProfilerContext",
    "ProfilerRecords",
    "Statistics",
    "default_profiler_records",
    "enable_statistics",
    "get_statistics",
    "pop_statistics",
    "profiler",
    "push_statistics",
    "statistics",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def enable_statistics() -> None:
    """Count what the current device's resource hands out from now on; what counts already goes on."""
    current = mr.get_current_device_resource()
    if not isinstance(current, mr.StatisticsResourceAdaptor):
        mr.set_current_device_resource(mr.StatisticsResourceAdaptor(current))


def get_statistics() -> Statistics | None:
    """The counters of the current resource; None where nothing counts."""
    counting = _counting()
    return None if counting is None else counting.allocation_counts


def push_statistics() -> Statistics | None:
    """Put new counters on the stack; gives those that were on top, or None where nothing counts."""
    counting = _counting()
    return None if counting is None else counting.push_counters()


def pop_statistics() -> Statistics | None:
    """Take the counters from the stack; gives what they counted, or None where nothing counts."""
    counting = _counting()
    return None if counting is None else counting.pop_counters()


@contextmanager
def statistics() -> Generator[None, None, None]:
    """Inside, what the current resource hands out is counted, on counters of its own.

    >>> from tensormem import rmm
    >>> with statistics():
    ...     buffer = rmm.DeviceBuffer(size=1000)
    ...     get_statistics().peak_bytes
    1000
    """
    before = None
    if push_statistics() is None:
        before = mr.get_current_device_resource()
        enable_statistics()
    inside = mr.get_current_device_resource()
    try:
        yield
    finally:
        if inside is not mr.get_current_device_resource():
            raise errors.InvalidArgument("RMM memory source stack was changed while in the statistics context")
        if before is None:
            pop_statistics()
        else:
            mr.set_current_device_resource(before)


def _counting() -> mr.StatisticsResourceAdaptor | None:
    current = mr.get_current_device_resource()
    return current if isinstance(current, mr.StatisticsResourceAdaptor) else None


class ProfilerRecords:
    """What profilers saw, by name.

    >>> records = ProfilerRecords()
    >>> records.add("load", Statistics(0, 0, 60, 1, 100, 2))
    >>> records.records["load"].memory_peak
    60
    """

    @dataclass
    class MemoryRecord:
        """What all calls of one name allocated: how often it ran, the bytes of all, the highest peak of one."""

        num_calls: int = 0
        memory_total: int = 0
        memory_peak: int = 0

        def add(self, memory_total: int, memory_peak: int) -> None:
            """Add what one call allocated."""
            self.num_calls += 1
            self.memory_total += memory_total
            self.memory_peak = max(self.memory_peak, memory_peak)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, ProfilerRecords.MemoryRecord] = {}

    def add(self, name: str, data: Statistics) -> None:
        """Add what one call allocated."""
        with self._lock:
            record = self._records.setdefault(name, ProfilerRecords.MemoryRecord())
            record.add(data.total_bytes, data.peak_bytes)

    @property
    def records(self) -> dict[str, MemoryRecord]:
        """A copy of the records, by name."""
        with self._lock:
            return {name: replace(record) for name, record in self._records.items()}

    def report(self, ordered_by: Literal["num_calls", "memory_peak", "memory_total"] = "memory_peak") -> str:
        """The records as a table, the largest first."""
        rows = sorted(self.records.items(), key=lambda item: -int(getattr(item[1], ordered_by)))
        head = "Memory Profiling\n================\n\n"
        if not rows:
            return head + "No data, maybe profiling wasn't enabled?"
        lines = [
            "Legends:",
            "  ncalls       - number of times the function or code block was called",
            "  memory_peak  - peak memory allocated in function or code block (in bytes)",
            "  memory_total - total memory allocated in function or code block (in bytes)",
            "",
            f"Ordered by: {ordered_by}",
            "",
            "ncalls     memory_peak    memory_total  filename:lineno(function)",
        ]
        lines += [f"{row.num_calls:6,d} {row.memory_peak:15,d} {row.memory_total:15,d}  {name}" for name, row in rows]
        return head + "\n".join(lines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.records})"

    def __str__(self) -> str:
        return self.report()


default_profiler_records = ProfilerRecords()


class ProfilerContext:
    """Counts what a function or a `with` block allocates; made by `profiler`.

    >>> ProfilerContext(ProfilerRecords(), "load")._name
    'load'
    """

    def __init__(self, records: ProfilerRecords, name: str) -> None:
        self._records = records
        self._name = name

    def __call__(self, func: Callable[_P, _R]) -> Callable[_P, _R]:
        name = self._name or _get_descriptive_name_of_object(func)

        @wraps(func)
        def counted(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            push_statistics()
            try:
                return func(*args, **kwargs)
            finally:
                self._end(name)

        return counted

    def __enter__(self) -> "ProfilerContext":
        if not self._name:
            raise errors.InvalidArgument("When profiler is used as a context manager, a name must be provided")
        push_statistics()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(self._name)

    def _end(self, name: str) -> None:
        if (counted := pop_statistics()) is not None:
            self._records.add(name, counted)


def profiler(*, records: ProfilerRecords = default_profiler_records, name: str = "") -> ProfilerContext:
    """A decorator and context that counts what a function or a block allocates, where statistics are enabled.

    >>> from tensormem import rmm
    >>> records = ProfilerRecords()
    >>> with statistics(), profiler(records=records, name="load"):
    ...     buffer = rmm.DeviceBuffer(size=1000)
    >>> records.records["load"]
    ProfilerRecords.MemoryRecord(num_calls=1, memory_total=1000, memory_peak=1000)
    """
    return ProfilerContext(records, name)


def _get_descriptive_name_of_object(obj: Callable[..., object]) -> str:
    """The file, line and name of a function."""
    function = inspect.unwrap(obj)
    _, line = inspect.getsourcelines(function)
    return f"{inspect.getfile(function)}:{line}({function.__qualname__})"


explain_misspellings(globals())
