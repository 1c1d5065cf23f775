"""Owns: where bytes live (`LogicalMemorySpace`), what computes (`ComputeDevice`), DLPack's numbers for both, and which
device suits which space.

Must not know: drivers and resources. Drivers say here which devices this machine has (`register_compute_device`), and
nothing here ever moves a byte.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from functools import total_ordering

from tensormem.errors import InvalidArgument, InvalidSpace, NoCompatibleComputeDevice, UnknownDeviceType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    Reach = Callable[["LogicalMemorySpace"], bool]

_MAX_ID = 2**31 - 1  # DLPack's device_id is an int32


class DeviceType(IntEnum):
    """DLPack 1.3's number for a kind of device memory.

    >>> DeviceType.CUDA_MANAGED.value
    13
    """

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    OPENCL = 4
    VULKAN = 7
    METAL = 8
    VPI = 9
    ROCM = 10
    ROCM_HOST = 11
    EXT_DEV = 12
    CUDA_MANAGED = 13
    ONEAPI = 14
    WEBGPU = 15
    HEXAGON = 16
    MAIA = 17
    TRN = 18


class GpuVendor(StrEnum):
    """Whose GPU: the same word as in `cuda:0` and `rocm:0`.

    >>> GpuVendor("rocm") == "rocm"
    True
    """

    CUDA = "cuda"
    ROCM = "rocm"


class SpaceKind(StrEnum):
    """The four kinds of place where bytes live, in the order in which spaces sort.

    >>> list(SpaceKind)[0] == "main"
    True
    """

    MAIN = "main"
    PINNED = "pinned"
    GPU = "gpu"
    MANAGED = "managed"


class DeviceKind(StrEnum):
    """The kinds of things that compute, in the order in which devices sort.

    >>> DeviceKind("cpu") == "cpu"
    True
    """

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"


class OpKind(StrEnum):
    """What a compute device is wanted for.

    >>> OpKind("reduce") == "reduce"
    True
    """

    CONTRACT = "contract"
    BATCHED_GEMM = "batched_gemm"
    REDUCE = "reduce"
    TRACE = "trace"
    PERMUTE = "permute"
    ELEMENTWISE_MUL = "elementwise_mul"
    COPY = "copy"


_FROM_DLPACK = {
    DeviceType.CPU: SpaceKind.MAIN,
    DeviceType.CUDA_HOST: SpaceKind.PINNED,
    DeviceType.ROCM_HOST: SpaceKind.PINNED,
    DeviceType.CUDA: SpaceKind.GPU,
    DeviceType.ROCM: SpaceKind.GPU,
    DeviceType.CUDA_MANAGED: SpaceKind.MANAGED,
}
_TO_DLPACK = {
    (SpaceKind.PINNED, GpuVendor.CUDA): DeviceType.CUDA_HOST,
    (SpaceKind.PINNED, GpuVendor.ROCM): DeviceType.ROCM_HOST,
    (SpaceKind.GPU, GpuVendor.CUDA): DeviceType.CUDA,
    (SpaceKind.GPU, GpuVendor.ROCM): DeviceType.ROCM,
}


@total_ordering
class _Place:
    """A kind and a number. Immutable, ordered, and one object per value: pickles and copies keep identity."""

    __slots__ = ("_order", "device_id", "kind")
    _order: tuple[int, int]
    device_id: int
    kind: StrEnum

    @classmethod
    def _intern(cls, kind: StrEnum, device_id: object) -> Self:
        number = _checked_id(kind, device_id)
        place = object.__new__(cls)
        order = list(type(kind)).index(kind), number
        for slot, value in (("_order", order), ("device_id", number), ("kind", kind)):
            object.__setattr__(place, slot, value)
        # setdefault is atomic: threads that race for the same value all get the first one's object.
        known = _interned.setdefault((cls, kind, number), place)
        assert isinstance(known, cls)
        return known

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: {name}")

    def __lt__(self, other: object) -> bool:
        return self._order < other._order if isinstance(other, type(self)) else NotImplemented

    def __reduce__(self) -> tuple[type[_Place], tuple[str, int]]:
        return type(self), (str(self.kind), self.device_id)


_interned: dict[tuple[type, str, int], _Place] = {}


def _checked_id(kind: str, device_id: object) -> int:
    try:
        number = -1 if isinstance(device_id, bool) else index(device_id)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= _MAX_ID:
        raise InvalidSpace(f"{kind}:{device_id!r:.40}", what=f"ids are whole numbers from 0 to {_MAX_ID}")
    return number


def _parsed_id(text: str, digits: str) -> int:
    if not (digits.isascii() and digits.isdigit()) or (digits[0] == "0" and digits != "0") or len(digits) > 10:
        raise InvalidSpace(text, what="a kind and an id are written as in gpu:0")
    return int(digits)


class LogicalMemorySpace(_Place):
    """Where bytes live and who can reach them: `main`, `pinned`, `gpu(i)` or `managed`.

    A space does not say whose GPU it is: `cuda:1` and `rocm:1` are other ways to write `gpu:1`.

    >>> LogicalMemorySpace.parse("cuda:1") is gpu(1), str(gpu(1)), sorted([managed, gpu(1), gpu(0), main])
    (True, 'gpu:1', [tm.main, tm.gpu(0), tm.gpu(1), tm.managed])
    """

    __slots__ = ()
    kind: SpaceKind

    def __new__(cls, kind: str, device_id: int = 0) -> LogicalMemorySpace:
        """The one object for this kind; only `gpu` takes a `device_id` other than 0."""
        if kind not in tuple(SpaceKind):
            raise InvalidSpace(kind)
        if kind != SpaceKind.GPU and _checked_id(kind, device_id) != 0:
            raise InvalidSpace(f"{kind}:{device_id}", what="only gpu is numbered")
        return cls._intern(SpaceKind(kind), device_id)

    @classmethod
    def parse(cls, text: str | LogicalMemorySpace) -> LogicalMemorySpace:
        """The space behind `main`, `pinned`, `managed`, `gpu:1`, `cuda:1` or `rocm:1`; a space is itself."""
        if isinstance(text, LogicalMemorySpace):
            return text
        if text in ("main", "pinned", "managed"):
            return cls(text)
        kind, _, digits = text.partition(":") if isinstance(text, str) else ("", "", "")
        if kind not in ("gpu", "cuda", "rocm"):
            raise InvalidSpace(text)
        return cls("gpu", _parsed_id(text, digits))

    @classmethod
    def from_dlpack(cls, device_type: int, device_id: int = 0) -> LogicalMemorySpace:
        """The space of a DLPack device. Only GPU memory is numbered: other ids say nothing and are dropped.

        >>> LogicalMemorySpace.from_dlpack(10, 1)
        tm.gpu(1)
        """
        kind = _FROM_DLPACK.get(device_type)
        if kind is None:
            name = DeviceType(device_type).name if device_type in tuple(DeviceType) else ""
            raise UnknownDeviceType(device_type, name)
        number = _checked_id(kind, device_id)
        return cls(kind, number if kind is SpaceKind.GPU else 0)

    def to_dlpack(self, vendor: str | None = None) -> tuple[DeviceType, int]:
        """DLPack's (device_type, device_id). Without a `vendor`, the GPUs registered on this machine tell it.

        Pinned memory with no GPU, or with GPUs of two vendors, is (1, 0): that is always true of it.

        >>> gpu(1).to_dlpack("rocm") == (10, 1), pinned.to_dlpack("cuda") == (3, 0), managed.to_dlpack() == (13, 0)
        (True, True, True)
        """
        if vendor is not None and vendor not in tuple(GpuVendor):
            raise InvalidArgument(f"{vendor!r} is no GPU vendor; they are {', '.join(GpuVendor)}")
        match self.kind:
            case SpaceKind.MAIN:
                return DeviceType.CPU, 0
            case SpaceKind.MANAGED:
                return DeviceType.CUDA_MANAGED, 0
        vendors = {vendor} if vendor is not None else _vendors_of(self)
        if len(vendors) == 1:
            return _TO_DLPACK[self.kind, vendors.pop()], self.device_id
        if self.kind is SpaceKind.PINNED:
            return DeviceType.CPU, 0
        raise NoCompatibleComputeDevice(self, what=f"say whose GPU it is with vendor=; here are {len(vendors)} vendors")

    def __str__(self) -> str:
        return f"gpu:{self.device_id}" if self.kind is SpaceKind.GPU else str(self.kind)

    def __repr__(self) -> str:
        return f"tm.gpu({self.device_id})" if self.kind is SpaceKind.GPU else f"tm.{self.kind}"


main = LogicalMemorySpace("main")
pinned = LogicalMemorySpace("pinned")
managed = LogicalMemorySpace("managed")


def gpu(device_id: int) -> LogicalMemorySpace:
    """The memory of GPU `device_id`, whoever made the GPU.

    >>> gpu(1) is LogicalMemorySpace.parse("gpu:1")
    True
    """
    return LogicalMemorySpace("gpu", device_id)


class ComputeDevice(_Place):
    """What computes: `cpu:0`, `cuda:1`, `rocm:2`.

    >>> ComputeDevice.parse("cuda:1") is ComputeDevice("cuda", 1), str(ComputeDevice("cpu"))
    (True, 'cpu:0')
    """

    __slots__ = ()
    kind: DeviceKind

    def __new__(cls, kind: str, device_id: int = 0) -> ComputeDevice:
        """The one object for this kind and id."""
        if kind not in tuple(DeviceKind):
            raise InvalidSpace(kind)
        return cls._intern(DeviceKind(kind), device_id)

    @classmethod
    def parse(cls, text: str | ComputeDevice) -> ComputeDevice:
        """The device behind `cpu:0`, `cuda:1` or `rocm:2`; a device is itself."""
        if isinstance(text, ComputeDevice):
            return text
        kind, _, digits = text.partition(":") if isinstance(text, str) else ("", "", "")
        if kind not in tuple(DeviceKind):
            raise InvalidSpace(text)
        return cls(kind, _parsed_id(text, digits))

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU of any vendor."""
        return self.kind is not DeviceKind.CPU

    def __str__(self) -> str:
        return f"{self.kind}:{self.device_id}"

    def __repr__(self) -> str:
        return f"tm.ComputeDevice({str(self.kind)!r}, {self.device_id})"


# --- The devices of this machine, and which one suits ----------------------------------------------------------------


class ComputeChoice:
    """A device that can work in a space, and why it stands where it stands in the list.

    >>> rank_compute_devices(main)[0].reason
    'main memory is its own'
    """

    __slots__ = ("device", "reason")

    def __init__(self, device: ComputeDevice, reason: str) -> None:
        self.device, self.reason = device, reason

    def __repr__(self) -> str:
        return f"ComputeChoice(device={self.device!r}, reason={self.reason!r})"


def register_compute_device(device: ComputeDevice | str, reaches: Reach | Iterable[Place] | None = None) -> None:
    """Say that this machine has `device`, and which spaces it `reaches`: some spaces, or a function that tells.

    Unless told, a CPU reaches main, pinned and managed memory, and a GPU its own, pinned and managed memory.
    `cpu:0` is always there. A device is registered once; drivers unregister theirs when they close.
    """
