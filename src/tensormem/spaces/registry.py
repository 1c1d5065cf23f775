"""Owns: which compute devices this machine has, and which spaces each one reaches.

Must not know: how drivers find devices. They register what they found and unregister it when they close; `cpu:0` is
always there.
"""

from __future__ import annotations

from tensormem.errors import InvalidArgument, InvalidSpace
from tensormem.spaces.device import ComputeDevice
from tensormem.spaces.space import LogicalMemorySpace, gpu, main, managed, pinned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensormem.spaces.words import SpaceLike

    Reach = Callable[[LogicalMemorySpace], bool]

_CPU = ComputeDevice("cpu")
# One atomic dict operation per change and one per look: no lock is needed, and none is held while a `Reach` runs.
_registered: dict[ComputeDevice, tuple[Reach]] = {_CPU: (frozenset((main, pinned, managed)).__contains__,)}


def register_compute_device(device: SpaceLike, reaches: Reach | Iterable[SpaceLike] | None = None) -> None:
    """Say that this machine has `device`, and which spaces it `reaches`: several, or a function that tells.

    Unless told, a GPU reaches its own, pinned and managed memory, and a CPU main, pinned and managed memory.

    >>> register_compute_device("cuda:0")
    >>> compute_devices()
    [tm.ComputeDevice('cpu', 0), tm.ComputeDevice('cuda', 0)]
    >>> unregister_compute_device("cuda:0")
    """
    named = ComputeDevice.parse(device)
    # The tuple is new each time, so that the same function given twice does not look like the first registration.
    entry = (reaches if callable(reaches) else _reach_of(named, reaches),)
    if _registered.setdefault(named, entry) is not entry:
        raise InvalidArgument(f"{named} is already registered; unregister it first")


def unregister_compute_device(device: SpaceLike) -> None:
    """Say that `device` is gone. `cpu:0` cannot go."""
    named = ComputeDevice.parse(device)
    if named is _CPU:
        raise InvalidArgument(f"{named} is always there and cannot be unregistered")
    if _registered.pop(named, None) is None:
        raise InvalidArgument(f"{named} is not registered")


def compute_devices() -> list[ComputeDevice]:
    """The compute devices of this machine, in order.

    >>> compute_devices()[0]
    tm.ComputeDevice('cpu', 0)
    """
    return sorted(_registered)


def devices_reaching(space: LogicalMemorySpace) -> list[ComputeDevice]:
    """The devices that say they reach `space`, in no promised order."""
    return [device for device, (reach,) in list(_registered.items()) if reach(space)]


def _reach_of(device: ComputeDevice, spaces: Iterable[SpaceLike] | None) -> Reach:
    if isinstance(spaces, str):
        raise InvalidSpace(spaces, what="give several spaces, as in ['main', 'gpu:0']")
    if spaces is None:
        spaces = (gpu(device.device_id) if device.is_gpu else main, pinned, managed)
    return frozenset(map(LogicalMemorySpace.parse, spaces)).__contains__
