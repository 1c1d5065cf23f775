"""Owns: `ComputeDevice`, the value that names what computes.

Must not know: whether this machine has such a device; the registry does.
"""

from __future__ import annotations

from tensormem.errors import InvalidSpace
from tensormem.spaces.kinds import DeviceKind, SpaceKind
from tensormem.spaces.place import Place, find_kind
from tensormem.spaces.words import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

    from tensormem.spaces.words import SpaceLike

_KINDS: dict[str, DeviceKind] = {kind.value: kind for kind in DeviceKind}


class ComputeDevice(Place):
    """What computes: `cpu:0`, `cuda:1`, `rocm:2`.

    >>> ComputeDevice.parse("cuda:1") is ComputeDevice("cuda", 1), str(ComputeDevice("cpu"))
    (True, 'cpu:0')
    """

    __slots__ = ()
    kind: DeviceKind

    def __new__(cls, kind: str, device_id: SupportsIndex = 0) -> ComputeDevice:
        """The one object for this kind and id."""
        return cls._intern(find_kind(_KINDS, kind), device_id)

    @classmethod
    def parse(cls, said: SpaceLike) -> ComputeDevice:
        """The device behind `cpu:0` (also `cpu`, `host`, `main`), `cuda:1` or `rocm:2` (also `hip:2`); it is itself.

        `gpu:1` does not say whose it is and is refused, as is memory that no single device owns.

        >>> ComputeDevice.parse("hip"), ComputeDevice.parse("main")
        (tm.ComputeDevice('rocm', 0), tm.ComputeDevice('cpu', 0))
        """
        if isinstance(said, ComputeDevice):
            return said
        meant = read(said)
        if meant.kind is SpaceKind.MAIN:
            return cls(DeviceKind.CPU, meant.number)
        if meant.vendor in _KINDS:
            return cls(meant.vendor, meant.number)
        if meant.kind is SpaceKind.GPU:
            raise InvalidSpace(said, what=f"it does not say whose GPU it is; write cuda:{meant.number} or rocm")
        raise InvalidSpace(said, what=f"{meant} is memory; a device is cpu:0, cuda:0 or rocm:0")

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, of any vendor."""
        return self.kind is not DeviceKind.CPU

    def __str__(self) -> str:
        return f"{self.kind}:{self.device_id}"

    def __repr__(self) -> str:
        return f"tm.ComputeDevice({str(self.kind)!r}, {self.device_id})"
