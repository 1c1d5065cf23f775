"""Owns: which compute device suits a space and an operation, best first, and why.

Must not know: how operations run. The choice is about where the bytes are and how often each one is touched.
"""

from __future__ import annotations

from tensormem.errors import InvalidArgument, NoCompatibleComputeDevice
from tensormem.spaces.device import ComputeDevice
from tensormem.spaces.kinds import OpKind, SpaceKind
from tensormem.spaces.registry import devices_reaching
from tensormem.spaces.space import LogicalMemorySpace
from tensormem.spaces.words import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.spaces.words import SpaceLike

# In memory that both sides reach: (op, kind) to whether GPUs go first, and the reason why that side does.
_HEAVY = (True, "much arithmetic for each byte pays for the way to the GPU")
_READ_ONCE = (True, "the result is small, and the GPU reads faster than it is fed")
_MIGRATES = (True, "managed pages move to the GPU once and stay there")
_BUS_BOUND = (False, "every byte would cross the bus twice for one multiplication")
_SPARSE = (False, "a diagonal is too little work for a launch")
_MOVES_BYTES = (False, "moving bytes about within host memory is the CPU's work")
_NO_OP = (True, "without an operation the faster device goes first")
_GPU_FIRST: dict[tuple[OpKind | None, SpaceKind], tuple[bool, str]] = {
    (op, kind): verdict
    for op, in_pinned, in_managed in (
        (OpKind.CONTRACT, _HEAVY, _HEAVY),
        (OpKind.BATCHED_GEMM, _HEAVY, _HEAVY),
        (OpKind.REDUCE, _READ_ONCE, _MIGRATES),
        (OpKind.ELEMENTWISE_MUL, _BUS_BOUND, _MIGRATES),
        (OpKind.TRACE, _SPARSE, _SPARSE),
        (OpKind.PERMUTE, _MOVES_BYTES, _MOVES_BYTES),
        (OpKind.COPY, _MOVES_BYTES, _MOVES_BYTES),
        (None, _NO_OP, _NO_OP),
    )
    for kind, verdict in ((SpaceKind.PINNED, in_pinned), (SpaceKind.MANAGED, in_managed))
}


class ComputeChoice:
    """A device that can work in a space, and why it stands where it stands in the list.

    >>> rank_compute_devices("main")[0]
    ComputeChoice(device=tm.ComputeDevice('cpu', 0), reason='main memory is its own')
    """

    __slots__ = ("device", "reason")

    def __init__(self, device: ComputeDevice, reason: str) -> None:
        self.device, self.reason = device, reason

    def __repr__(self) -> str:
        return f"ComputeChoice(device={self.device!r}, reason={self.reason!r})"


def preferred_compute_devices(space: SpaceLike, op: OpKind | str | None = None) -> list[ComputeDevice]:
    """The devices of this machine that reach `space`, best first for `op`; none is `NoCompatibleComputeDevice`.

    Main memory goes to the CPU and GPU memory to its own GPU, then to others that reach it. In memory that both sides
    reach, the operation decides:

    | op                      | pinned    | managed   |
    |-------------------------|-----------|-----------|
    | contract, batched_gemm  | GPU first | GPU first |
    | reduce                  | GPU first | GPU first |
    | elementwise_mul         | CPU first | GPU first |
    | trace, permute, copy    | CPU first | CPU first |
    | none given              | GPU first | GPU first |

    Of several GPUs the one with the lowest number goes first. `rank_compute_devices` also gives the reasons.

    >>> preferred_compute_devices("main")
    [tm.ComputeDevice('cpu', 0)]
    """
    return [choice.device for choice in rank_compute_devices(space, op)]


def rank_compute_devices(space: SpaceLike, op: OpKind | str | None = None) -> list[ComputeChoice]:
    """The same devices as `preferred_compute_devices`, each with the reason for its place.

    >>> [choice.reason for choice in rank_compute_devices("main", "copy")]
    ['main memory is its own']
    """
    where, wanted = LogicalMemorySpace.parse(space), _parse_op(op)
    vendor = read(space).vendor
    # Where it was said whose memory it is, the GPU of that number of another vendor is not meant.
    devices = [
        device for device in devices_reaching(where) if not (device.is_gpu and vendor not in (None, device.kind))
    ]
    if not devices:
        raise NoCompatibleComputeDevice(where, wanted)
    if where.kind in (SpaceKind.PINNED, SpaceKind.MANAGED):
        judged = _judge_shared(devices, *_GPU_FIRST[wanted, where.kind])
    else:
        judged = [(device, *_judge_owned(device, where)) for device in devices]
    judged.sort(key=lambda item: (item[1], item[0].device_id, item[0]))
    return [ComputeChoice(device, reason) for device, _, reason in judged]


def _parse_op(op: OpKind | str | None) -> OpKind | None:
    try:
        return None if op is None else OpKind(op)
    except ValueError:
        raise InvalidArgument(f"{op!r:.40} is no operation; they are {', '.join(OpKind)}") from None


def _judge_owned(device: ComputeDevice, space: LogicalMemorySpace) -> tuple[int, str]:
    """The place of a device (0 is best) in memory that one side owns, and why."""
    if space.kind is SpaceKind.MAIN:
        return (1, "its driver reaches main memory") if device.is_gpu else (0, "main memory is its own")
    if not device.is_gpu:
        return 2, f"the CPU reaches {space} across the bus"
    if device.device_id == space.device_id:
        return 0, f"{space} is its own memory"
    return 1, f"it reaches {space} as a peer"


def _judge_shared(devices: list[ComputeDevice], gpu_first: bool, why: str) -> list[tuple[ComputeDevice, int, str]]:
    """The places of devices in memory that both sides reach."""
    if not any(device.is_gpu == gpu_first for device in devices):
        why_not_first = f"no {'GPU' if gpu_first else 'CPU'} of this machine reaches it"
    else:
        why_not_first = f"the {'GPU' if gpu_first else 'CPU'} goes first: {why}"
    return [(device, 0, why) if device.is_gpu == gpu_first else (device, 1, why_not_first) for device in devices]
