"""Owns: reading PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`).

They are pickles, and a pickle can name any function to call: this one may hold plain dicts, lists, tuples, text and
numbers, and a single name of anything else is refused before it is looked up. It can also name one value many times:
nothing here takes more than the file is long. Must not know: who wants the events.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any, NoReturn

from tensormem._core import find_oddity
from tensormem.errors import TraceError
from tensormem.trace.definitions import Names
from tensormem.trace.events import Event, EventKind, Frame, Reporter
from tensormem.trace.listed import ListedEvents
from tensormem.trace.trace import Trace

# What PyTorch calls an event; "free_requested" is passed over, because the bytes are not free before "free_completed".
_KINDS = {
    "alloc": EventKind.ALLOCATE,
    "free_completed": EventKind.DEALLOCATE,
    "segment_alloc": EventKind.MAP,
    "segment_map": EventKind.MAP,
    "segment_free": EventKind.UNMAP,
    "segment_unmap": EventKind.UNMAP,
    "oom": EventKind.FAIL,
}
_LIMIT = 2**64


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every global, persistent id and buffer: what is left cannot run anything."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}: a snapshot has plain values only")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it refers to something outside of the file")


def matches(head: bytes) -> bool:
    """Whether a file that begins like this is a pickle."""
    return len(head) > 1 and head[0] == 0x80 and head[1] <= 5


def read(data: bytes, source: str) -> Trace:
    """The trace in a snapshot; `TraceError` when it is none, or when the pickle is not plain."""
    return _Importer(_load(data, source), source, len(data)).trace()


def _load(data: bytes, source: str) -> dict[str, Any]:
    if (odd := find_oddity(data)) is not None:
        raise TraceError(source, odd[0], what=f"the pickle cannot be read: {odd[1]}")
    stream = io.BytesIO(data)
    try:
        snapshot = _PlainUnpickler(stream).load()
    # What damaged opcodes raise is not a closed list.
    except (Exception, RecursionError) as error:
        raise TraceError(source, stream.tell(), what=f"the pickle cannot be read: {error}") from None
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("device_traces"), list):
        raise TraceError(source, 0, what="the pickle is no memory snapshot: it has no device_traces")
    return snapshot


class _Importer:
    """One snapshot on its way to a trace."""

    def __init__(self, snapshot: dict[str, Any], source: str, nbytes: int) -> None:
        self._snapshot, self._source = snapshot, source
        self._room = nbytes  # each event, block and frame of a file takes a byte of it at least
        self._segments = self._segments_by_device()
        self._names = Names()
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._stacks_by_list: dict[int, int] = {}  # by the identity of a list of the snapshot
        self._generation = 0

    def trace(self) -> Trace:
        rows = [self._rows(device) for device in self._snapshot["device_traces"]]
        times = [row["time_us"] for device in rows for row in device]
        first = min(times, default=0)
        events: list[Event] = []
        for device, of_device in enumerate(rows):
            name = "PyTorch caching allocator"
            self._names.reporters[device + 1] = Reporter(device + 1, 0, name, f"gpu:{device}", foreign=True)
            events += self._device_events(device, of_device, first)
        store = ListedEvents(events, self._names, wall_ns=first * 1000 if first else None)
        return Trace(store, source=self._source, format="torch")

    def _rows(self, device: object) -> list[dict[str, Any]]:
        if not isinstance(device, list):
            self._refuse("a device's trace is no list")
        self._take_room(device)
        for row in device:
            if not isinstance(row, dict) or not isinstance(row.get("action"), str):
                self._refuse("an event has no action")
            # Snapshots of old versions have no times: then the order is the time.
            row.setdefault("time_us", 0)
            for name in ("addr", "size", "stream", "time_us"):
                self._number(row, name)
        return device

    def _number(self, row: dict[str, Any], name: str) -> int:
        value = row.get(name, 0)
        if type(value) is not int or not 0 <= value < _LIMIT:
            shown = hex(value) if type(value) is int else f"of type {type(value).__name__}"
            self._refuse(f"the {name} of an event or a block is {shown:.40}")
        return value

    def _take_room(self, values: list[Any]) -> None:
        self._room -= len(values)
        if self._room < 0:
            self._refuse("it lists the same values again and again")

    def _device_events(self, device: int, rows: list[dict[str, Any]], first: int) -> Iterator[Event]:
        live: dict[int, int] = {}
        resource = device + 1
        yield from self._before(device, rows, live)
        for row in rows:
            kind = _KINDS.get(row["action"])
            if kind is None:
                continue
            address, nbytes = row.get("addr", 0), row.get("size", 0)
            generation = 0
            if kind is EventKind.ALLOCATE:
                generation = live[address] = self._next()
            elif kind is EventKind.DEALLOCATE:
                generation = live.pop(address, 0) or self._next()
            other = 1 if kind is EventKind.FAIL else 0
            yield Event(
                (row["time_us"] - first) * 1000,
                kind,
                0 if kind is EventKind.FAIL else address,
                nbytes,
                generation,
                other,
                row.get("stream", 0),
                resource,
                _text(row.get("user_metadata")),
                self._stack(row.get("frames")),
            )

    def _before(self, device: int, rows: list[dict[str, Any]], live: dict[int, int]) -> Iterator[Event]:
        """What was out when PyTorch began to remember: freed later without having been allocated, or still there."""
        known: set[int] = set()
        early: dict[int, tuple[int, int]] = {}
        for row in rows:
            kind = _KINDS.get(row["action"])
            if kind is EventKind.ALLOCATE:
                known.add(row.get("addr", 0))
            elif kind is EventKind.DEALLOCATE and row.get("addr", 0) not in known:
                early.setdefault(row.get("addr", 0), (row.get("size", 0), self._stack(None)))
                known.add(row.get("addr", 0))
        for address, nbytes, frames in self._active(device):
            if address not in known:
                early[address] = nbytes, self._stack(frames)
        for address, (nbytes, stack) in early.items():
            generation = live[address] = self._next()
            yield Event(0, EventKind.ALLOCATE, address, nbytes, generation, resource=device + 1, stack=stack)

    def _segments_by_device(self) -> dict[int, list[dict[str, Any]]]:
        found: dict[int, list[dict[str, Any]]] = {}
        segments = self._snapshot.get("segments", [])
        for segment in segments if isinstance(segments, list) else ():
            if isinstance(segment, dict) and type(device := segment.get("device")) is int:
                found.setdefault(device, []).append(segment)
        return found

    def _active(self, device: int) -> Iterator[tuple[int, int, object]]:
        for segment in self._segments.get(device, ()):
            address = self._number(segment, "address")
            blocks = segment.get("blocks", [])
            if not isinstance(blocks, list):
                continue
            self._take_room(blocks)
            for block in blocks:
                if not isinstance(block, dict):
                    self._refuse("a block of a segment is no dict")
                nbytes = self._number(block, "size")
                if block.get("state") == "active_allocated":
                    placed = self._number(block, "address") if "address" in block else address
                    yield placed, nbytes, block.get("frames")
                address += nbytes

    def _stack(self, frames: object) -> int:
        if not isinstance(frames, list) or not frames:
            return 0
        known = self._stacks_by_list.get(id(frames))
        if known is None:
            known = self._stacks_by_list[id(frames)] = self._new_stack(frames)
        return known

    def _new_stack(self, frames: list[Any]) -> int:
        self._take_room(frames)
        numbers = tuple(self._frame(frame) for frame in frames if isinstance(frame, dict))
        number = self._stacks.setdefault(numbers, len(self._stacks) + 1)
        self._names.stacks[number] = numbers
        return number

    def _frame(self, frame: dict[str, Any]) -> int:
        line = frame.get("line", 0)
        made = Frame(_text(frame.get("filename")), line if type(line) is int else 0, _text(frame.get("name")))
        number = self._frames.setdefault(made, len(self._frames) + 1)
        self._names.frames[number] = made
        return number

    def _next(self) -> int:
        self._generation += 1
        return self._generation

    def _refuse(self, what: str) -> NoReturn:
        raise TraceError(self._source, 0, what=what)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
