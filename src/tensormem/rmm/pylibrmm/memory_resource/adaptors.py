"""Owns: the adaptors that watch, limit or retry what an upstream does, by RMM's names.

Must not know: which resource is current.
"""

import os
from collections.abc import Callable

from tensormem import errors, mr
from tensormem.rmm._cuda.gpu import getDevice
from tensormem.rmm.pylibrmm import logger
from tensormem.rmm.pylibrmm.memory_resource.device_memory_resource import DeviceMemoryResource
from tensormem.rmm.pylibrmm.memory_resource.upstream_resource_adaptor import UpstreamResourceAdaptor, resource_of

__all__ = [
    "FailureCallbackResourceAdaptor",
    "LastCounters",
    "LimitingResourceAdaptor",
    "LoggingResourceAdaptor",
    "PrefetchResourceAdaptor",
    "StatisticsResourceAdaptor",
    "TrackingResourceAdaptor",
]

_Upstream = DeviceMemoryResource | mr.DeviceMemoryResource


class LimitingResourceAdaptor(UpstreamResourceAdaptor):
    """Refuses what would bring the bytes that are out above `allocation_limit`.

    >>> from tensormem import rmm
    >>> limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.SystemMemoryResource(), 1024)
    >>> limited.get_allocated_bytes(), limited.get_allocation_limit()
    (0, 1024)
    """

    resource: mr.LimitingResourceAdaptor

    def __init__(self, upstream_mr: _Upstream, allocation_limit: int) -> None:
        super().__init__(upstream_mr, mr.LimitingResourceAdaptor(resource_of(upstream_mr), allocation_limit))

    def get_allocated_bytes(self) -> int:
        """The bytes that are out."""
        return self.resource.allocated_bytes

    def get_allocation_limit(self) -> int:
        """The most bytes that may be out."""
        return self.resource.allocation_limit


class LoggingResourceAdaptor(UpstreamResourceAdaptor):
    """Writes a row for each allocation and deallocation to a file in RMM's format.

    The number of the current device comes before the file's extension: "rmm.log" is written as "rmm.dev0.log".
    `log_file_name` is the variable RMM_LOG_FILE unless given. An existing file is written anew.

    >>> import tempfile
    >>> from tensormem import rmm
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mr = rmm.mr.LoggingResourceAdaptor(rmm.mr.SystemMemoryResource(), f"{folder}/rmm.csv")
    ...     mr.deallocate(mr.allocate(1024), 1024)
    ...     mr.flush()
    ...     mr.get_file_name().endswith("rmm.dev0.csv")
    True
    """

    resource: mr.LoggingResourceAdaptor

    def __init__(self, upstream_mr: _Upstream, log_file_name: str | os.PathLike[str] | None = None) -> None:
        named = os.environ.get("RMM_LOG_FILE") if log_file_name is None else os.fspath(log_file_name)
        if not named:
            raise errors.InvalidArgument(
                "RMM log file must be specified either using log_file_name= argument or the variable RMM_LOG_FILE"
            )
        base, extension = os.path.splitext(named)
        self._log_file_name = os.path.abspath(f"{base}.dev{getDevice()}{extension}")
        upstream = resource_of(upstream_mr)
        sink = mr.CsvSink(self._log_file_name, overwrite=True)
        super().__init__(upstream_mr, mr.LoggingResourceAdaptor(upstream, sink=sink))

    def flush(self) -> None:
        """Bring all rows to the file."""
        self.resource.flush()

    def get_file_name(self) -> str:
        """The path of the file."""
        return self._log_file_name


class LastCounters(errors.InvalidArgument, IndexError):
    """The last pair of counters cannot be popped; RMM raises an `IndexError` for it."""


class StatisticsResourceAdaptor(UpstreamResourceAdaptor):
    """Counts bytes and blocks: current, peak and total, on a stack of counters.

    >>> from tensormem import rmm
    >>> counted = rmm.mr.StatisticsResourceAdaptor(rmm.mr.SystemMemoryResource())
    >>> counted.deallocate(counted.allocate(1000), 1000)
    >>> counted.allocation_counts.peak_bytes
    1000
    """

    resource: mr.StatisticsResourceAdaptor

    def __init__(self, upstream_mr: _Upstream) -> None:
        super().__init__(upstream_mr, mr.StatisticsResourceAdaptor(resource_of(upstream_mr)))

    @property
    def allocation_counts(self) -> mr.Statistics:
        """The counters on top of the stack."""
        return self.resource.allocation_counts

    def push_counters(self) -> mr.Statistics:
        """Put new counters on the stack; gives those that were on top."""
        return self.resource.push_counters()

    def pop_counters(self) -> mr.Statistics:
        """Take the counters from the stack and add them to those below; gives what they counted."""
        try:
            return self.resource.pop_counters()
        except errors.InvalidArgument:
            raise LastCounters("cannot pop the last counter pair") from None


class TrackingResourceAdaptor(UpstreamResourceAdaptor):
    """Knows every block that is out, and with `capture_stacks` who asked for it.

    >>> from tensormem import rmm
    >>> tracked = rmm.mr.TrackingResourceAdaptor(rmm.mr.SystemMemoryResource())
    >>> tracked.deallocate(tracked.allocate(1000), 1000)
    >>> tracked.get_allocated_bytes(), tracked.get_outstanding_allocations_str()
    (0, '')
    """

    resource: mr.TrackingResourceAdaptor

    def __init__(self, upstream_mr: _Upstream, capture_stacks: bool = False) -> None:
        super().__init__(
            upstream_mr, mr.TrackingResourceAdaptor(resource_of(upstream_mr), capture_stacks=capture_stacks)
        )

    def get_allocated_bytes(self) -> int:
        """The bytes that are out."""
        return self.resource.get_allocated_bytes()

    def get_outstanding_allocations_str(self) -> str:
        """The blocks that are out, one paragraph each; empty when none is."""
        return self.resource.get_outstanding_allocations_str()

    def log_outstanding_allocations(self) -> None:
        """Write the blocks that are out to the debug log."""
        logger.log(logger.level_enum.info, f"Outstanding Allocations: {self.get_outstanding_allocations_str()}")


class FailureCallbackResourceAdaptor(UpstreamResourceAdaptor):
    """Asks `callback(nbytes)` when memory is short, and tries again while it returns true.

    >>> from tensormem import rmm
    >>> limited = rmm.mr.LimitingResourceAdaptor(rmm.mr.SystemMemoryResource(), 1024)
    >>> rmm.mr.FailureCallbackResourceAdaptor(limited, lambda nbytes: False).allocate(2048)
    Traceback (most recent call last):
    tensormem.errors.OutOfBudget: ...
    """

    def __init__(self, upstream_mr: _Upstream, callback: Callable[[int], object]) -> None:
        super().__init__(upstream_mr, mr.FailureCallbackResourceAdaptor(resource_of(upstream_mr), callback))


class PrefetchResourceAdaptor(UpstreamResourceAdaptor):
    """Brings each block to the current device as it is handed out.

    >>> from tensormem import rmm
    >>> mr = rmm.mr.PrefetchResourceAdaptor(rmm.mr.SystemMemoryResource())
    >>> mr.deallocate(mr.allocate(1024), 1024)
    """

    def __init__(self, upstream_mr: _Upstream) -> None:
        upstream = resource_of(upstream_mr)
        device = -1 if upstream.driver.name == "host" else getDevice()
        super().__init__(upstream_mr, mr.PrefetchResourceAdaptor(upstream, device))
