"""Owns: `LogicalMemorySpace`, the value that names where bytes live, and its numbers in DLPack.

Must not know: what computes there, nor whose GPU it is; whoever holds the memory knows the vendor and says it.
"""

from __future__ import annotations

from tensormem.errors import InvalidArgument, InvalidSpace, UnknownDeviceType
from tensormem.spaces.kinds import DeviceType, GpuVendor, SpaceKind
from tensormem.spaces.place import Place, checked_id, find_kind
from tensormem.spaces.words import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

    from tensormem.spaces.words import SpaceLike

_FROM_DLPACK: dict[int, SpaceKind] = {
    DeviceType.CPU: SpaceKind.MAIN,
    DeviceType.CUDA_HOST: SpaceKind.PINNED,
    DeviceType.ROCM_HOST: SpaceKind.PINNED,
    DeviceType.CUDA: SpaceKind.GPU,
    DeviceType.ROCM: SpaceKind.GPU,
    DeviceType.CUDA_MANAGED: SpaceKind.MANAGED,
}
# By kind and vendor. DLPack has one number for managed memory, and GPU memory without a vendor has none.
_TO_DLPACK: dict[tuple[str, str | None], DeviceType] = {
    (SpaceKind.MAIN, None): DeviceType.CPU,
    (SpaceKind.MAIN, GpuVendor.CUDA): DeviceType.CPU,
    (SpaceKind.MAIN, GpuVendor.ROCM): DeviceType.CPU,
    (SpaceKind.PINNED, None): DeviceType.CPU,
    (SpaceKind.PINNED, GpuVendor.CUDA): DeviceType.CUDA_HOST,
    (SpaceKind.PINNED, GpuVendor.ROCM): DeviceType.ROCM_HOST,
    (SpaceKind.GPU, GpuVendor.CUDA): DeviceType.CUDA,
    (SpaceKind.GPU, GpuVendor.ROCM): DeviceType.ROCM,
    (SpaceKind.MANAGED, None): DeviceType.CUDA_MANAGED,
    (SpaceKind.MANAGED, GpuVendor.CUDA): DeviceType.CUDA_MANAGED,
    (SpaceKind.MANAGED, GpuVendor.ROCM): DeviceType.CUDA_MANAGED,
}
_KINDS: dict[str, SpaceKind] = {kind.value: kind for kind in SpaceKind}
# What texts were read as; as many as a machine has, however many are tried.
_MOST_READ = 256
_read: dict[str, LogicalMemorySpace] = {}


class LogicalMemorySpace(Place):
    """Where bytes live and who can reach them: `main`, `pinned`, `gpu(i)` or `managed`.

    A space does not say whose GPU it is: `cuda:1` and `rocm:1` are other ways to write `gpu:1`. It equals its
    own text, whose hash it has, and a device of another library that means it; `parse` reads all other texts.

    >>> LogicalMemorySpace.parse("cuda:1") is gpu(1), str(gpu(1)), sorted([managed, gpu(1), gpu(0), main])
    (True, 'gpu:1', [tm.main, tm.gpu(0), tm.gpu(1), tm.managed])
    >>> main == "main", gpu(1) == "gpu:1", gpu(1) == "cuda:1", main == "pinned", main == "nowhere"
    (True, True, False, False, False)
    """

    __slots__ = ()
    kind: SpaceKind

    def __new__(cls, kind: str, device_id: SupportsIndex = 0) -> LogicalMemorySpace:
        """The one object for this kind and id; only `gpu` takes an id other than 0."""
        known = find_kind(_KINDS, kind)
        if known is not SpaceKind.GPU and checked_id(kind, device_id) != 0:
            raise InvalidSpace(f"{kind}:{device_id}", what="only gpu is numbered")
        return cls._intern(known, device_id)

    @classmethod
    def parse(cls, said: SpaceLike) -> LogicalMemorySpace:
        """The space that is meant: `main` (also `cpu`, `host`), `pinned`, `managed`, `gpu:1` (also `cuda:1`, `rocm:1`).

        A space is itself. The memory of a `ComputeDevice`, a `Driver` or another library's device is meant by it.

        >>> LogicalMemorySpace.parse("cpu") is main, LogicalMemorySpace.parse("cuda") is gpu(0)
        (True, True)
        """
        if isinstance(said, LogicalMemorySpace):
            return said
        known = _read.get(said) if type(said) is str else None
        if known is None:
            meant = read(said)
            # A device of the CPU has a number of its own; the memory of all of them is main memory.
            number = 0 if meant.kind is SpaceKind.MAIN and not isinstance(said, str) else meant.number
            known = cls(meant.kind, number)
            if type(said) is str and len(_read) < _MOST_READ:
                _read[said] = known
        return known

    @classmethod
    def from_dlpack(cls, device_type: int, device_id: SupportsIndex = 0) -> LogicalMemorySpace:
        """The space of a DLPack device. Only GPU memory is numbered: the ids of the others are not kept.

        >>> LogicalMemorySpace.from_dlpack(10, 1)
        tm.gpu(1)
        """
        kind = None if isinstance(device_type, bool) else _FROM_DLPACK.get(device_type)
        if kind is None:
            raise UnknownDeviceType(device_type, next((known.name for known in DeviceType if known == device_type), ""))
        number = checked_id(kind, device_id)
        return cls(kind, number if kind is SpaceKind.GPU else 0)

    def to_dlpack(self, vendor: str | None = None) -> tuple[DeviceType, int]:
        """DLPack's (device_type, device_id), where `vendor` is whose driver made the memory: "cuda", "rocm" or None.

        GPU memory needs a vendor. Pinned memory of no vendor is plain CPU memory to DLPack.

        >>> gpu(1).to_dlpack("rocm") == (10, 1), pinned.to_dlpack("cuda") == (3, 0), pinned.to_dlpack() == (1, 0)
        (True, True, True)
        """
        device_type = _TO_DLPACK.get((self.kind, vendor))
        if device_type is None:
            raise InvalidArgument(f"{self} has no DLPack device for the vendor {vendor!r}; say 'cuda' or 'rocm'")
        return device_type, self.device_id

    def __eq__(self, other: object) -> bool:
        if self is other or other is None or isinstance(other, Place):
            return self is other
        if isinstance(other, str):  # with a text, equality has to mean equal hashes: "cpu" is another one
            return str(self) == other
        try:
            return LogicalMemorySpace.parse(other) is self  # type: ignore[arg-type]
        except InvalidSpace:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"gpu:{self.device_id}" if self.kind is SpaceKind.GPU else str(self.kind)

    def __repr__(self) -> str:
        return f"tm.gpu({self.device_id})" if self.kind is SpaceKind.GPU else f"tm.{self.kind}"


main = LogicalMemorySpace("main")
pinned = LogicalMemorySpace("pinned")
managed = LogicalMemorySpace("managed")


def gpu(device_id: SupportsIndex) -> LogicalMemorySpace:
    """The memory of GPU number `device_id`, whoever made it.

    >>> gpu(1) is LogicalMemorySpace.parse("gpu:1")
    True
    """
    return LogicalMemorySpace("gpu", device_id)
