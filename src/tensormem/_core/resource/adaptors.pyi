from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self, SupportsIndex

from tensormem._core.base.streams import StreamLike
from tensormem._core.resource.budgets import Budget
from tensormem._core.resource.resources import DeviceBlock, DeviceMemoryResource

class LimitingResourceAdaptor(DeviceMemoryResource):
    def __init__(
        self,
        upstream_mr: DeviceMemoryResource,
        allocation_limit: SupportsIndex | str | None = None,
        *,
        budget: Budget | None = None,
    ) -> None: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def allocation_limit(self) -> int: ...
    @allocation_limit.setter
    def allocation_limit(self, limit: int | str) -> None: ...
    @property
    def allocated_bytes(self) -> int: ...
    @property
    def reserved_bytes(self) -> int: ...
    @property
    def remaining(self) -> int: ...
    def reserve(self, nbytes: int | str) -> BudgetReservation: ...

class BudgetReservation:
    @property
    def remaining(self) -> int: ...
    def allocate(
        self,
        nbytes: SupportsIndex | str,
        stream: StreamLike | None = None,
        *,
        alignment: SupportsIndex | None = None,
        tag: str | None = None,
    ) -> DeviceBlock: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *exc_info: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

class Statistics(NamedTuple):
    current_bytes: int
    current_count: int
    peak_bytes: int
    peak_count: int
    total_bytes: int
    total_count: int

class StatisticsResourceAdaptor(DeviceMemoryResource):
    def __init__(self, upstream_mr: DeviceMemoryResource) -> None: ...
    @property
    def allocation_counts(self) -> Statistics: ...
    def push_counters(self) -> Statistics: ...
    def pop_counters(self) -> Statistics: ...

class AlignedResourceAdaptor(DeviceMemoryResource):
    def __init__(
        self, upstream_mr: DeviceMemoryResource, alignment: int = 256, alignment_threshold: int | str = 0
    ) -> None: ...
    @property
    def alignment(self) -> int: ...
    @property
    def alignment_threshold(self) -> int: ...

class PrefetchResourceAdaptor(DeviceMemoryResource):
    def __init__(self, upstream_mr: DeviceMemoryResource, device: int = -1) -> None: ...
    @property
    def device(self) -> int: ...

class FaultInjectionResourceAdaptor(DeviceMemoryResource):
    def __init__(
        self,
        upstream_mr: DeviceMemoryResource,
        *,
        nth: int | None = None,
        every: int | None = None,
        min_bytes: int | str = 0,
        max_bytes: int | str | None = None,
        tag: str | None = None,
        probability: float = 1.0,
        seed: int = 0,
    ) -> None: ...
    @property
    def matching_calls(self) -> int: ...
    @property
    def injected_faults(self) -> int: ...

class FailureCallbackResourceAdaptor(DeviceMemoryResource):
    def __init__(self, upstream_mr: DeviceMemoryResource, callback: Callable[[int], object]) -> None: ...
    @property
    def callback(self) -> Callable[[int], object]: ...

class PressureResourceAdaptor(DeviceMemoryResource):
    def __init__(
        self,
        upstream_mr: DeviceMemoryResource,
        callback: Callable[[str, int], object],
        *,
        warn: int | str,
        critical: int | str,
        hysteresis: int | str = 0,
    ) -> None: ...
    @property
    def callback(self) -> Callable[[str, int], object]: ...
    @property
    def level(self) -> str: ...
