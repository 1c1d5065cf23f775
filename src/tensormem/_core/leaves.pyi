from collections.abc import Callable

from tensormem._core.drivers import Driver
from tensormem._core.resources import DeviceBlock, DeviceMemoryResource
from tensormem._core.streams import Stream
from tensormem.drivers.where import WhereLike

class HostMemoryResource(DeviceMemoryResource):
    def __init__(self, *, huge_pages: bool = False, numa_node: int | None = None, zeroed: bool = False) -> None: ...
    @property
    def huge_pages(self) -> bool: ...
    @property
    def numa_node(self) -> int | None: ...
    @property
    def zeroed(self) -> bool: ...

_Device = WhereLike | int

class PinnedMemoryResource(DeviceMemoryResource):
    def __init__(self, device: _Device | None = None) -> None: ...

class GpuMemoryResource(DeviceMemoryResource):
    def __init__(self, device: _Device = 0) -> None: ...

class ManagedMemoryResource(DeviceMemoryResource):
    def __init__(self, device: _Device = 0) -> None: ...
    def advise(self, block: DeviceBlock, advice: str, device: int | None = None, *, unset: bool = False) -> None: ...

class GpuAsyncMemoryResource(DeviceMemoryResource):
    def __init__(self, device: _Device = 0) -> None: ...
    def trim(self, keep_bytes: int | str = 0) -> None: ...

class CallbackMemoryResource(DeviceMemoryResource):
    def __init__(
        self,
        allocate_func: Callable[[int, Stream], int | None],
        deallocate_func: Callable[[int, int, Stream], object],
        *,
        alignment: int = 256,
    ) -> None: ...
    @property
    def allocate_func(self) -> Callable[[int, Stream], int | None]: ...
    @property
    def deallocate_func(self) -> Callable[[int, int, Stream], object]: ...
