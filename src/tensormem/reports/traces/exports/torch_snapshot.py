"""Owns: writing a trace as PyTorch's memory snapshot, which its viewer opens: plain dicts and lists, pickled.

Each space becomes a device: gpu:1 is device 1, and spaces without a number come behind. A block that was still out at
the end is a segment of its own. Must not know: PyTorch; it is not imported.
"""

import pickle
from typing import Any, BinaryIO

from tensormem.trace import BlockLife, Event, EventKind, Trace

_ACTIONS = {
    EventKind.ALLOCATE: ("alloc",),
    EventKind.DEALLOCATE: ("free_requested", "free_completed"),
    EventKind.MAP: ("segment_map",),
    EventKind.UNMAP: ("segment_unmap",),
    EventKind.FAIL: ("oom",),
}


def write(trace: Trace, out: BinaryIO) -> None:
    """The snapshot, as a pickle that names no class."""
    pickle.dump(snapshot_of(trace), out, protocol=4)


def snapshot_of(trace: Trace) -> dict[str, Any]:
    """The same as plain values."""
    devices = _devices(trace)
    traces: list[list[dict[str, Any]]] = [[] for _ in range(max(devices.values(), default=0) + 1)]
    frames = {number: _frames(trace, number) for number in trace.names.stacks}
    for event in trace.events():
        rows = traces[devices.get(trace.names.space(event.resource), 0)]
        rows.extend(_row(trace, event, action, frames) for action in _actions(event))
    left = [block for block in trace.blocks() if block.end_ns is None]
    segments = [_segment(block, devices[block.space], frames) for block in left]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}


def _devices(trace: Trace) -> dict[str, int]:
    spaces = sorted({trace.names.space(event.resource) for event in trace.events() if event.resource})
    numbers = {space: int(space[4:]) for space in spaces if space.startswith("gpu:") and space[4:].isdecimal()}
    following = max(numbers.values(), default=-1) + 1
    for space in spaces:
        if space not in numbers:
            numbers[space], following = following, following + 1
    return numbers


def _actions(event: Event) -> tuple[str, ...]:
    # Pages are shown whoever maps them; blocks as the program asked for them.
    is_page = event.kind in (EventKind.MAP, EventKind.UNMAP)
    return _ACTIONS.get(event.kind, ()) if is_page or not event.depth else ()


def _row(trace: Trace, event: Event, action: str, frames: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "action": action,
        "addr": event.address,
        "size": event.nbytes,
        "stream": event.stream,
        "time_us": ((trace.wall_ns or 0) + event.time_ns) // 1000,
        "compile_context": "N/A",
        "user_metadata": event.tag,
        "frames": frames.get(event.stack, []),
        **({"device_free": 0} if action == "oom" else {}),
    }


def _segment(block: BlockLife, device: int, frames: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    stack = frames.get(block.stack, [])
    inner = {
        "address": block.address,
        "size": block.nbytes,
        "requested_size": block.nbytes,
        "state": "active_allocated",
        "frames": stack,
    }
    return {
        "device": device,
        "address": block.address,
        "total_size": block.nbytes,
        "allocated_size": block.nbytes,
        "active_size": block.nbytes,
        "requested_size": block.nbytes,
        "stream": block.stream,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": stack,
        "blocks": [inner],
    }


def _frames(trace: Trace, stack: int) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": function} for file, line, function in trace.names.stack(stack)]
