from tensormem._core.budgets import Budget
from tensormem._core.drivers import Driver
from tensormem._core.resources import DeviceMemoryResource
from tensormem.spaces import LogicalMemorySpace

class ElasticMemoryResource(DeviceMemoryResource):
    def __init__(
        self,
        device: int | str | LogicalMemorySpace | Driver = "host",
        *,
        page_size: int | str = "2MiB",
        capacity: int | str | None = None,
        physical_limit: int | str | None = None,
        budget: Budget | None = None,
        release_threshold: int | str = "256MiB",
    ) -> None: ...
    @property
    def budget(self) -> Budget | None: ...
    @property
    def page_size(self) -> int: ...
    @property
    def physical_bytes(self) -> int: ...
    @property
    def peak_physical_bytes(self) -> int: ...
    @property
    def idle_bytes(self) -> int: ...
    @property
    def fragmentation(self) -> float: ...
    def trim(self, keep_bytes: int | str = 0) -> int: ...
    def _is_valid(self) -> bool: ...
