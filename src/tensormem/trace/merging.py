"""Owns: several recordings as one: their events on one timeline, their names kept apart.

Resources and threads are named after the file they come from, tags and spaces are common. Each file's clock offset and
its error are written as counters. Must not know: how offsets are estimated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tensormem.distributed.clocks import ClockOffset
from tensormem.errors import InvalidArgument
from tensormem.trace.clocks import Origin, align
from tensormem.trace.definitions import Names
from tensormem.trace.events import EventKind
from tensormem.trace.file import TraceFile
from tensormem.trace.format import EVENT, KINDS, DefinitionKind
from tensormem.trace.writing import TraceWriter

__all__ = ["MergedSource", "merge"]

_NUMBERS = {kind: number for number, kind in KINDS.items()}
_Definition = tuple[int, int, tuple[int, ...], tuple[str, ...]]


class MergedSource(NamedTuple):
    """One recording in a merged one: its name there, how far its time 0 lies behind the common one, and its clock."""

    name: str
    events: int
    shift_ns: int
    clock: ClockOffset
    complete: bool


class _Tables:
    """Numbers of the merged file: those of each source, moved behind all that came before."""

    def __init__(self) -> None:
        self.tags: dict[str, int] = {}
        self.next = dict.fromkeys(("threads", "reporters", "frames", "stacks"), 1)

    def tag(self, text: str) -> int:
        return self.tags.setdefault(text, len(self.tags) + 1) if text else 0

    def move(self, name: str, numbers: Sequence[int]) -> dict[int, int]:
        base = self.next[name]
        self.next[name] = base + len(numbers)
        return {0: 0} | {number: base + place for place, number in enumerate(n for n in numbers if n)}


def merge(
    sources: Sequence[str | PathLike[str]],
    out: BinaryIO,
    *,
    offsets: Mapping[str, ClockOffset] | None = None,
) -> list[MergedSource]:
    """Write the recordings `sources` as one into `out`; says where each came to lie.

    Recordings of one machine lie exactly. For others give `offsets` by file name, measured by round trips; without one
    the calendars of the machines are believed, to a tenth of a second.

    >>> import io, pathlib, tempfile
    >>> import tensormem as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("a.tmt", "b.tmt"):
    ...     with tm.trace(folder / name):
    ...         tm.mr.HostMemoryResource().allocate(1000, tag=name[0])
    <DeviceBlock ...>
    <DeviceBlock ...>
    >>> with open(folder / "all.tmt", "wb") as out:
    ...     merged = merge([folder / "a.tmt", folder / "b.tmt"], out)
    >>> [event.tag for event in tm.trace.open(folder / "all.tmt").events() if event.kind == "allocate"]
    ['a', 'b']
    """
    if not sources:
        raise InvalidArgument("there is nothing to merge")
    files = [TraceFile(fspath(source)) for source in sources]
    try:
        return _merge(files, _labels([fspath(source) for source in sources]), out, offsets or {})
    finally:
        for file in files:
            file.close()


def _labels(paths: list[str]) -> list[str]:
    names = [Path(path).name.removesuffix(".tmt") for path in paths]
    return [name if names.count(name) == 1 else f"{name} {place}" for place, name in enumerate(names, 1)]


def _merge(
    files: list[TraceFile], labels: list[str], out: BinaryIO, offsets: Mapping[str, ClockOffset]
) -> list[MergedSource]:
    origins = [Origin(file.header.wall_ns, file.header.monotonic_ns) for file in files]
    known = {Path(file.source).name for file in files}
    if unknown := set(offsets) - known:
        raise InvalidArgument(f"an offset was given for {', '.join(sorted(unknown))}, which is not merged")
    clocks = align(origins, [offsets.get(Path(file.source).name) for file in files])
    begun = [origin.monotonic_ns + clock.offset_ns for origin, clock in zip(origins, clocks, strict=True)]
    zero = min(begun)
    earliest = origins[begun.index(zero)]
    stacks = any(file.header.stacks for file in files)
    writer = TraceWriter(out, wall_ns=earliest.wall_ns, monotonic_ns=max(zero, 0), stacks=stacks)
    tables, merged = _Tables(), []
    for place, (file, label, clock) in enumerate(zip(files, labels, clocks, strict=True)):
        shift = begun[place] - zero
        _Source(file, label, place, shift, clock).write(writer, tables)
        merged.append(MergedSource(label, file.event_count, shift, clock, file.complete))
    writer.close(sum(file.dropped for file in files))
    return merged


class _Source:
    def __init__(self, file: TraceFile, label: str, place: int, shift: int, clock: ClockOffset) -> None:
        self.file, self.label, self.place, self.shift, self.clock = file, label, place, shift, clock

    def write(self, writer: TraceWriter, tables: _Tables) -> None:
        names = self.file.names
        used = {thread for thread, _ in self.file.records()}
        self.threads = tables.move("threads", sorted(used | set(names.threads)))
        self.resources = tables.move("reporters", sorted(names.reporters))
        self.frames = tables.move("frames", sorted(names.frames))
        self.stacks = tables.move("stacks", sorted(names.stacks))
        self.tags = {0: 0} | {number: tables.tag(text) for number, text in names.tags.items()}
        clocks = {
            f"clock {what.removesuffix('_ns')} of {self.label} (ns)": value
            for what, value in self.clock._asdict().items()
        }
        writer.define(self._definitions(names, tables, list(clocks)))
        for thread, records in self.file.records():
            self._write_events(writer, records, self.threads[thread])
        rows = [
            EVENT.pack(
                self.shift, 0, 0, 0, value % 2**64, 0, 0, tables.tag(text), 0, _NUMBERS[EventKind.COUNTER], 0, 0, 0
            )
            for text, value in clocks.items()
        ]
        writer.events(b"".join(rows), 0, self.shift, self.shift)

    def _definitions(self, names: Names, tables: _Tables, counters: list[str]) -> list[_Definition]:
        found: list[_Definition] = [
            (DefinitionKind.TAG, tables.tag(text), (), (text,)) for text in [*names.tags.values(), *counters]
        ]
        for number, moved in self.threads.items():
            if number:
                name = names.threads.get(number) or str(number)
                found.append((DefinitionKind.THREAD, moved, (), (f"{self.label}: {name}",)))
        for number, reporter in names.reporters.items():
            below, texts = self.resources.get(reporter.below, 0), (f"{self.label}: {reporter.name}", reporter.space)
            numbers = below, int(reporter.foreign)
            found.append((DefinitionKind.RESOURCE, self.resources[number], numbers, texts))
        for number, frame in names.frames.items():
            found.append((DefinitionKind.FRAME, self.frames[number], (frame.line,), (frame.file, frame.function)))
        for number, calls in names.stacks.items():
            inner = tuple(self.frames[call] for call in calls if call in self.frames)
            found.append((DefinitionKind.STACK, self.stacks[number], inner, ()))
        return found

    def _write_events(self, writer: TraceWriter, records: memoryview, thread: int) -> None:
        rows, times = [], []
        streams = self.place << 40  # numbers of streams are small, and are of one process
        for row in EVENT.iter_unpack(records):
            time, address, nbytes, generation, other, stream, resource, tag, stack, kind, depth, detail, _ = row
            times.append(time + self.shift)
            rows.append(
                EVENT.pack(
                    times[-1], address, nbytes, generation, other,
                    streams | stream if stream else 0,
                    self.resources.get(resource, 0), self.tags.get(tag, 0), self.stacks.get(stack, 0),
                    kind, depth, detail, 0,
                )
            )  # fmt: skip
        if rows:
            writer.events(b"".join(rows), thread, min(times), max(times))
