"""Owns: `ComputeDevice`, the value that names what computes.

Must not know: whether this machine has such a device; the registry does.
"""

from __future__ import annotations

from tensormem.errors import InvalidSpace
from tensormem.spaces.kinds import DeviceKind
from tensormem.spaces.place import Place, find_kind, split_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

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
    def parse(cls, text: str | ComputeDevice) -> ComputeDevice:
        """The device behind `cpu:0`, `cuda:1` or `rocm:2`; a device is itself."""
        if isinstance(text, ComputeDevice):
            return text
        kind, device_id = split_text(text)
        if kind not in _KINDS:
            raise InvalidSpace(text)
        return cls(kind, device_id)

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, of any vendor."""
        return self.kind is not DeviceKind.CPU

    def __str__(self) -> str:
        return f"{self.kind}:{self.device_id}"

    def __repr__(self) -> str:
        return f"tm.ComputeDevice({str(self.kind)!r}, {self.device_id})"
