from collections.abc import Callable
from os import PathLike
from typing import NamedTuple

from tensormem._core.resource.resources import DeviceMemoryResource

def format_stack(stack: tuple[tuple[object, int], ...]) -> str: ...

class LogRecord(NamedTuple):
    order: int
    timestamp_ns: int
    thread: int
    action: str
    device: int
    stream: int
    address: int
    nbytes: int
    tag: str
    generation: int
    state: str
    error: str
    what: str

class MemorySink:
    def __init__(self) -> None: ...
    @property
    def records(self) -> list[LogRecord]: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...

class RingSink:
    def __init__(self, capacity: int = 65536) -> None: ...
    @property
    def records(self) -> list[LogRecord]: ...
    @property
    def overwritten(self) -> int: ...
    def clear(self) -> None: ...

class CsvSink:
    def __init__(self, path: str | PathLike[str], *, overwrite: bool = False) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def skipped_records(self) -> int: ...

_Sink = MemorySink | RingSink | CsvSink | Callable[[LogRecord], object]

class LoggingResourceAdaptor(DeviceMemoryResource):
    def __init__(
        self,
        upstream_mr: DeviceMemoryResource,
        log_file_name: str | PathLike[str] | None = None,
        *,
        sink: _Sink | None = None,
    ) -> None: ...
    @property
    def sink(self) -> _Sink | None: ...
    @property
    def dropped_records(self) -> int: ...
    def flush(self) -> None: ...

class OutstandingBlock(NamedTuple):
    ptr: int
    nbytes: int
    generation: int
    tag: str
    timestamp_ns: int
    stack: str

class TrackingResourceAdaptor(DeviceMemoryResource):
    def __init__(self, upstream_mr: DeviceMemoryResource, capture_stacks: bool = False) -> None: ...
    @property
    def capture_stacks(self) -> bool: ...
    def get_allocated_bytes(self) -> int: ...
    def outstanding(self, *, oldest_first: bool = False) -> list[OutstandingBlock]: ...
    def totals_by_tag(self) -> dict[str, tuple[int, int]]: ...
    def get_outstanding_allocations_str(self) -> str: ...
    def log_outstanding_allocations(self) -> None: ...

class GuardFinding(NamedTuple):
    kind: str
    generation: int
    ptr: int
    nbytes: int
    tag: str
    offset: int
    bad_bytes: int
    found: int
    expected: int
    allocated_at: str
    freed_at: str

class DebugGuardResourceAdaptor(DeviceMemoryResource):
    def __init__(
        self,
        upstream_mr: DeviceMemoryResource,
        *,
        guard_bytes: int | str = 64,
        quarantine_bytes: int | str = "16MiB",
        capture_stacks: bool = True,
    ) -> None: ...
    def check(self) -> list[GuardFinding]: ...
    def flush_quarantine(self) -> None: ...
    @property
    def last_report(self) -> GuardFinding | None: ...
    @property
    def finding_count(self) -> int: ...
    @property
    def quarantined_bytes(self) -> int: ...
