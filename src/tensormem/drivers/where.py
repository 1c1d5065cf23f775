"""Owns: `Where`, what somebody meant who said where memory is to be or work to run, and the refusals of what cannot be.

Every entry point that takes a "where" resolves it here, so all of them take the same spellings. The words are
`tensormem.spaces.words`'s. A driver is looked for when it is asked for, and never before.
Must not know: what the memory is used for.
"""

from __future__ import annotations

from operator import index

from tensormem import errors
from tensormem._core import Driver
from tensormem.drivers import plugins, registry
from tensormem.spaces.device import ComputeDevice
from tensormem.spaces.kinds import DeviceKind, DeviceType, GpuVendor, SpaceKind
from tensormem.spaces.space import LogicalMemorySpace
from tensormem.spaces.words import WORDS, Said, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import SupportsIndex, TypeAlias

    from tensormem.spaces.words import SpaceLike

    WhereLike: TypeAlias = "SpaceLike | Where"

__all__ = ["COMPUTING", "GPUS", "Where", "get", "gpu", "resolve"]

GPUS = frozenset((SpaceKind.GPU,))
"""The spaces that only a GPU has."""
COMPUTING = frozenset((SpaceKind.MAIN, SpaceKind.GPU))
"""The spaces that one device owns, and whose driver is that device's: main memory, and that of each GPU."""

_VENDORS_IN_DLPACK = {
    DeviceType.CUDA: GpuVendor.CUDA.value,
    DeviceType.CUDA_HOST: GpuVendor.CUDA.value,
    DeviceType.ROCM: GpuVendor.ROCM.value,
    DeviceType.ROCM_HOST: GpuVendor.ROCM.value,
}
_POSSIBLE = {
    SpaceKind.MAIN: "main",
    SpaceKind.PINNED: "pinned",
    SpaceKind.GPU: "a GPU (gpu:0, cuda:0, rocm:0)",
    SpaceKind.MANAGED: "managed",
}
_DESCRIPTIONS = {
    SpaceKind.MAIN: "main is the memory of the CPU",
    SpaceKind.PINNED: "pinned is main memory that is locked in place and has no device of its own",
    SpaceKind.GPU: "it is the memory of one GPU",
    SpaceKind.MANAGED: "managed is memory that a driver moves between the host and all its GPUs",
}
_VENDOR_NAMES = {"cuda": "CUDA", "rocm": "ROCm"}
_MOST_KNOWN = 256


class Where(Said):
    """A place, as it was meant: the space, and on demand the driver, its device's number, and what computes there.

    A vendor that was named is kept: `cuda:1` is never ROCm's. `gpu:1` is GPU 1 of the first vendor that works here.

    >>> where = resolve("cpu")
    >>> where.space, where.driver, where.compute_device, str(where)
    (tm.main, <Driver host>, tm.ComputeDevice('cpu', 0), 'main')
    """

    __slots__ = ("_given", "space")
    space: LogicalMemorySpace
    _given: Driver | None

    def __init__(self, meant: Said, given: Driver | None = None) -> None:
        super().__init__(meant.kind, meant.vendor, meant.number)
        numbered = meant.kind is SpaceKind.GPU
        object.__setattr__(self, "space", LogicalMemorySpace(meant.kind, meant.number if numbered else 0))
        object.__setattr__(self, "_given", given)

    @property
    def driver(self) -> Driver:
        """The driver that makes memory there; `DriverUnavailable` says what was meant and what there is instead."""
        if self._given is not None:
            return self._given
        if self.kind is SpaceKind.MAIN:
            return registry.host()
        try:
            if self.vendor is not None:
                return registry.device(self.vendor, self.number)
            return registry.first_device(self.number)
        except errors.DriverUnavailable as refusal:
            if self.kind is SpaceKind.PINNED:
                return registry.host()
            reason = f"{self._meant()}, but {refusal.reason}; here there are {registry.describe_machine()}"
            raise errors.DriverUnavailable(str(self), reason) from None

    @property
    def ordinal(self) -> int:
        """The number of the device among those of its driver."""
        return self.driver.device

    @property
    def compute_device(self) -> ComputeDevice:
        """What computes there: the device of the driver."""
        driver = self.driver
        if driver.name == "host":
            return ComputeDevice(DeviceKind.CPU)
        return ComputeDevice(driver.name, driver.device)

    def _meant(self) -> str:
        whose = "" if self.vendor is None else f" of {_VENDOR_NAMES.get(self.vendor, self.vendor)}"
        return f"GPU {self.number}{whose} is meant" if self.kind is SpaceKind.GPU else f"{self} memory needs a GPU"

    def _facts(self) -> tuple[object, ...]:
        return self.kind, self.vendor, self.number, id(self._given)


_known: dict[object, Where] = {}


def resolve(
    said: WhereLike | SupportsIndex | tuple[int, int],
    among: Collection[str] | None = None,
    purpose: str = "",
    *,
    ordinals: bool = False,
    dlpack: bool = False,
) -> Where:
    """What `said` means, in any spelling; `InvalidSpace` for what means nothing.

    `among` are the kinds of space that can serve the `purpose`; another is refused with the reason. With `ordinals` a
    plain number is a GPU's, and with `dlpack` a pair of numbers is DLPack's (device_type, device_id).

    >>> resolve("gpu:1") == resolve(LogicalMemorySpace("gpu", 1)) == resolve(1, ordinals=True)
    True
    >>> resolve((2, 1), dlpack=True)
    Where('cuda:1')
    """
    # Text and spaces are what people say again and again.
    tabled = type(said) is str or type(said) is LogicalMemorySpace
    where = said if type(said) is Where else _known.get(said) if tabled else None
    if where is None:
        where = _resolve(said, ordinals, dlpack)
        if tabled and where._given is None and len(_known) < _MOST_KNOWN:
            _known[said] = where
    if among is not None and where.kind not in among:
        possible = " or ".join(_POSSIBLE[kind] for kind in SpaceKind if kind in among)
        reason = f"{purpose} on {possible}, and {_DESCRIPTIONS[where.kind]}"
        raise errors.UnsuitableSpace(str(where), f"{reason}; here there are {registry.describe_machine()}")
    return where


def get(name: WhereLike) -> Driver:
    """The driver of main memory or of a GPU: "host", "cuda:1", "gpu:0", `tm.gpu(1)`; or `DriverUnavailable` with why.

    >>> from tensormem import drivers
    >>> drivers.get("cpu") is drivers.get("main") is drivers.host()
    True
    """
    try:
        where = resolve(name, COMPUTING, "a driver works")
    except errors.InvalidSpace as refusal:
        # What could be the name of a driver is one that is not here.
        if not (isinstance(name, str) and name.isidentifier()):
            raise
        reason = f"there is no such driver ({refusal.what}); here there are {registry.describe_machine()}"
        raise errors.DriverUnavailable(name, reason) from None
    return where.driver


def gpu(device: WhereLike | SupportsIndex = 0) -> Driver:
    """The driver of a GPU: "cuda:1" by vendor; 1, "gpu:1" or `tm.gpu(1)` of the first vendor that works here."""
    return resolve(device, GPUS, "the driver of a GPU works", ordinals=True).driver


def _resolve(said: object, ordinals: bool, dlpack: bool) -> Where:
    if isinstance(said, Driver):
        return Where(read(said), said)
    if dlpack and isinstance(said, tuple):
        return Where(_read_dlpack(said))
    if isinstance(said, str) and said.partition(":")[0] not in WORDS and (found := _find_plugin(said)) is not None:
        return Where(read(found), found)
    if ordinals and not isinstance(said, str) and hasattr(type(said), "__index__"):
        return Where(read(LogicalMemorySpace("gpu", said)))  # type: ignore[arg-type]
    meant = read(said)
    if isinstance(said, str) and meant.kind is SpaceKind.MAIN and meant.number:
        raise errors.InvalidSpace(said, what="there is one main memory; only GPUs are numbered")
    return Where(meant)


def _find_plugin(said: str) -> Driver | None:
    """The driver of another package, by its name or as it calls itself: "toy" or "toy:0"."""
    name, colon, number = said.partition(":")
    driver = plugins.find(name) if name.isidentifier() else None
    return driver if driver is not None and (not colon or number == str(driver.device)) else None


def _read_dlpack(said: tuple[object, ...]) -> Said:
    if len(said) != 2:
        raise errors.InvalidSpace(said, what="a device of DLPack is two numbers: (device_type, device_id)")
    device_type, device_id = said
    if not isinstance(device_type, int):
        raise errors.InvalidSpace(said, what="a device of DLPack is two numbers: (device_type, device_id)")
    space = LogicalMemorySpace.from_dlpack(device_type, device_id)  # type: ignore[arg-type]
    # Its number for managed memory is one for all vendors, though it has CUDA's name.
    vendor = _VENDORS_IN_DLPACK.get(DeviceType(device_type))
    return Said(space.kind, vendor, 0 if space.kind is SpaceKind.MAIN else index(device_id))  # type: ignore[arg-type]
