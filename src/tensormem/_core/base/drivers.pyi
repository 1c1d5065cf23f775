from typing import Any, SupportsIndex, TypedDict, final

from tensormem._core.base.streams import StreamLike
from tensormem.drivers.where import WhereLike

class _DeviceInfo(TypedDict):
    name: str
    total_bytes: int
    numa_node: int
    simulated: bool
    managed_memory: bool
    virtual_memory: bool
    memory_pools: bool
    posix_handles: bool
    concurrent_managed_access: bool
    integrated: bool
    host_native_atomics: bool
    pageable_memory_access: bool

class _PhysicalInfo(TypedDict):
    size: int
    device: int
    exportable: bool
    huge_pages: bool
    imported: bool

class _HostFacts(TypedDict):
    huge_pages: bool
    huge_page_reason: str
    streams: int
    events: int
    page_blocks: int
    pins: int
    reservations: int
    mappings: int
    physicals: int
    committed_bytes: int
    leftovers: int
    areas: int
    area_limit: int

_Size = SupportsIndex | str

@final
class Driver:
    @property
    def name(self) -> str: ...
    @property
    def device(self) -> int: ...
    @property
    def simulated(self) -> bool: ...
    @property
    def device_count(self) -> int: ...
    def device_info(self, device: WhereLike | int | None = None) -> _DeviceInfo: ...
    def memory_info(self, device: WhereLike | int | None = None) -> tuple[int, int]: ...
    def copy(
        self, destination: SupportsIndex, source: SupportsIndex, nbytes: _Size, stream: StreamLike | None = None
    ) -> None: ...
    def copy_pitched(
        self,
        destination: SupportsIndex,
        destination_pitch: _Size,
        source: SupportsIndex,
        source_pitch: _Size,
        shape: tuple[int, int, int],
        stream: StreamLike | None = None,
        *,
        destination_plane: _Size | None = None,
        source_plane: _Size | None = None,
    ) -> None: ...
    def fill(
        self,
        destination: SupportsIndex,
        value: int,
        element_bytes: int,
        shape: tuple[int, int, int],
        stream: StreamLike | None = None,
        *,
        pitch: _Size | None = None,
        plane: _Size | None = None,
    ) -> None: ...
    def pin(self, address: SupportsIndex, nbytes: _Size) -> None: ...
    def unpin(self, address: SupportsIndex, nbytes: _Size) -> None: ...
    def advise(
        self,
        address: SupportsIndex,
        nbytes: _Size,
        advice: str,
        device: WhereLike | int | None = None,
        *,
        unset: bool = False,
    ) -> None: ...
    def prefetch(
        self,
        address: SupportsIndex,
        nbytes: _Size,
        device: WhereLike | int | None = None,
        stream: StreamLike | None = None,
    ) -> None: ...
    def import_external(self, fd: int, nbytes: _Size, device: WhereLike | int | None = None) -> int: ...
    def release_external(self, address: SupportsIndex) -> None: ...
    def granularity(self, device: WhereLike | int | None = None) -> tuple[int, int]: ...
    def reserve(self, size: _Size, alignment: _Size = 4096) -> int: ...
    def release(self, address: SupportsIndex, size: _Size) -> None: ...
    def physical_create(
        self,
        size: _Size,
        device: WhereLike | int | None = None,
        *,
        exportable: bool = False,
        huge_pages: bool = True,
        placement: int = ...,
    ) -> int: ...
    def physical_destroy(self, physical: int) -> None: ...
    def physical_info(self, physical: int) -> _PhysicalInfo: ...
    def map(self, address: SupportsIndex, size: _Size, physical: int, physical_offset: _Size = 0) -> None: ...
    def unmap(self, address: SupportsIndex, size: _Size) -> None: ...
    def set_access(
        self, address: SupportsIndex, size: _Size, access: str, device: WhereLike | int | None = None
    ) -> None: ...
    def physical_export(self, physical: int) -> int: ...
    def physical_import(self, fd: int, device: WhereLike | int | None = None) -> int: ...

def from_capsule(capsule: Any) -> Driver: ...
def host() -> Driver: ...
def abstract() -> Driver: ...
def host_facts() -> _HostFacts: ...
