from collections.abc import Callable
from typing import SupportsIndex, final

from tensormem._core.base.streams import StreamLike
from tensormem._core.resource.resources import DeviceMemoryResource
from tensormem._core.tensor.storages import Storage
from tensormem.drivers.where import WhereLike

class KindMemoryResource(DeviceMemoryResource):
    def __init__(self, kind: str, space: WhereLike = "main") -> None: ...
    @property
    def kind(self) -> str: ...

class SharedMemoryResource(KindMemoryResource):
    def __init__(self) -> None: ...
    @property
    def idle_bytes(self) -> int: ...
    def trim(self) -> int: ...

class DmaMemoryResource(KindMemoryResource):
    def __init__(self, heap: str | None = None) -> None: ...
    @property
    def heap(self) -> str | None: ...

class PixelBufferResource(KindMemoryResource):
    def __init__(self, context: object = None) -> None: ...
    @property
    def context(self) -> object: ...

@final
class KindRequest: ...

def allocate_of_kind(
    mr: DeviceMemoryResource,
    nbytes: SupportsIndex | str,
    make: Callable[[int], Storage],
    *,
    stream: StreamLike | None = None,
    alignment: SupportsIndex | None = None,
    tag: str | None = None,
) -> Storage: ...
def adopt_storage(
    mr: DeviceMemoryResource,
    storage: Storage,
    *,
    file: tuple[int, int] | None = None,
    stream: StreamLike | None = None,
    tag: str | None = None,
) -> Storage: ...
def kind_of(mr: DeviceMemoryResource) -> str | None: ...
