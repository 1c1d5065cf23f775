"""Owns: reading a `.tmt` file: which chunks it has, from its index or by following them, and the events of a window.

The file is mapped, not read: a window of a large trace touches only its own chunks. Nothing in it is believed before it
is checked, and what is wrong is a `TraceError` with the offset. A file whose writer was killed ends early, no more.
Must not know: what events mean.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from tensormem.errors import TraceError, UseAfterRelease
from tensormem.trace.definitions import Names
from tensormem.trace.events import Event, EventKind
from tensormem.trace.format import (
    CHUNK,
    END,
    EVENT,
    EVENT_BYTES,
    HEADER_BYTES,
    INDEX,
    KINDS,
    PEAK,
    TOTALS,
    Chunk,
    ChunkType,
    PeakKind,
    RecordedPeak,
    parse_chunk,
    parse_header,
    payload,
)

_FOREVER = 2**64
_SMALL = 64 * 2**20
_SIGN = 2**63
_UNSEEN = -1  # the size of a chunk that only the index has spoken of


class TraceFile:
    """A trace file, mapped. `complete` says that its recording was ended and not killed."""

    def __init__(self, path: str | Path) -> None:
        self.source = str(path)
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size < HEADER_BYTES:
                raise TraceError(self.source, 0, what=f"it has {size} bytes, and the header alone has {HEADER_BYTES}")
            # A mapped file that somebody cuts off kills its reader: what is small is read.
            file.seek(0)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size > _SMALL else None
            self._data = memoryview(file.read() if self._map is None else self._map)
        self._closed = False
        self._lost: int | None = None
        self._ends: dict[int, int] = {}  # where the chunk behind begins, by where one does
        try:
            self.header = parse_header(self._data, self.source)
            indexed = self._indexed()
            self.complete = indexed is not None
            self.chunks = self._followed() if indexed is None else indexed
            self.names = Names()
            self._learn()
        except BaseException:
            self.close()
            raise
        self._events = sorted((c for c in self.chunks if c.type == ChunkType.EVENTS), key=lambda c: c.first_time)
        self._starts = [chunk.first_time for chunk in self._events]

    def close(self) -> None:
        """Let go of the file. Twice is once."""
        self._closed = True
        self._data.release()
        if self._map is not None:
            self._map.close()

    @property
    def event_count(self) -> int:
        """How many events it holds."""
        return sum(chunk.records for chunk in self._events)

    @property
    def duration_ns(self) -> int:
        """The time of its last event."""
        return max((chunk.last_time for chunk in self._events), default=0)

    @property
    def dropped(self) -> int:
        """How many events were lost while it was recorded."""
        return max((chunk.dropped for chunk in self.chunks), default=0) if self._lost is None else self._lost

    @property
    def wall_ns(self) -> int | None:
        """When its time 0 was, in nanoseconds since 1970."""
        return self.header.wall_ns

    def events(self, start_ns: int = 0, end_ns: int = _FOREVER) -> Iterator[Event]:
        """The events from `start_ns` up to and without `end_ns`, by time."""
        chunks = self._overlapping(start_ns, end_ns)
        waiting: list[Event] = []
        for place, chunk in enumerate(chunks, 1):
            for event in self._decode(chunk):
                if start_ns <= event.time_ns < end_ns:
                    waiting.append(event)
            waiting.sort(key=_time)
            # Threads overlap: what a later chunk may still come before has to wait.
            is_last = place == len(chunks)
            ready = len(waiting) if is_last else bisect_left(waiting, chunks[place].first_time, key=_time)
            yield from waiting[:ready]
            del waiting[:ready]

    def records(self, start_ns: int = 0, end_ns: int = _FOREVER) -> Iterator[tuple[int, memoryview]]:
        """The raw records of the chunks that a window touches, 64 bytes each, with their thread: neither filtered nor
        sorted across chunks. For readers that have NumPy: `numpy.frombuffer(records, dtype)`."""
        for chunk in self._overlapping(start_ns, end_ns):
            yield chunk.thread, payload(self._data, self._checked(chunk), EVENT_BYTES, self.source)

    def event_chunks(self) -> list[tuple[int, int, int]]:
        """First time, last time and number of events of every chunk, by first time; no event is read for it."""
        return [(chunk.first_time, chunk.last_time, chunk.records) for chunk in self._events]

    def peaks(self, kind: PeakKind = PeakKind.WHOLE) -> Iterator[RecordedPeak]:
        """What the recording itself says of the most and the least that was out, by the time it was written."""
        for named in self.chunks:
            if named.type != ChunkType.PEAKS:
                continue
            for row in PEAK.iter_unpack(payload(self._data, self._checked(named), PEAK.size, self.source)):
                if row[0] == kind:
                    yield RecordedPeak(*row[1:])

    def totals(self, time_ns: int) -> tuple[int, dict[tuple[int, bool], tuple[int, int]]]:
        """The newest totals at or before a time: when they were taken, and (bytes, blocks) by (resource, outermost)."""
        found = [c for c in self.chunks if c.type == ChunkType.TOTALS and c.first_time <= time_ns]
        if not found:
            return 0, {}
        newest = max(found, key=lambda chunk: chunk.first_time)
        return newest.first_time, self._read_totals(newest)

    def every_totals(self) -> Iterator[tuple[int, dict[tuple[int, bool], tuple[int, int]]]]:
        """All totals by the time they were taken."""
        found = [chunk for chunk in self.chunks if chunk.type == ChunkType.TOTALS]
        for chunk in sorted(found, key=lambda chunk: chunk.first_time):
            yield chunk.first_time, self._read_totals(chunk)

    def _read_totals(self, chunk: Chunk) -> dict[tuple[int, bool], tuple[int, int]]:
        rows = TOTALS.iter_unpack(payload(self._data, self._checked(chunk), TOTALS.size, self.source))
        return {(row[0], bool(row[1])): (row[2], row[3]) for row in rows}

    def _overlapping(self, start_ns: int, end_ns: int) -> list[Chunk]:
        return [chunk for chunk in self._events[: bisect_left(self._starts, end_ns)] if chunk.last_time >= start_ns]

    def _decode(self, chunk: Chunk) -> Iterator[Event]:
        tags, thread = self.names.tags, chunk.thread
        for row in EVENT.iter_unpack(payload(self._data, self._checked(chunk), EVENT_BYTES, self.source)):
            time, address, nbytes, generation, other, stream, resource, tag, stack, number, depth, detail, _ = row
            kind = KINDS.get(number)
            if kind is None:
                continue
            if kind is EventKind.COUNTER and other >= _SIGN:
                other -= 2 * _SIGN
            name = (tags.get(tag) or f"tag {tag}") if tag else ""
            yield Event(
                time, kind, address, nbytes, generation, other, stream, resource, name, stack, depth, detail, thread
            )

    def _indexed(self) -> list[Chunk] | None:
        # Written by a writer that came to its end. Anything odd about it: the chunks are followed instead.
        last = len(self._data) - CHUNK.size - END.size
        if last < HEADER_BYTES:
            return None
        try:
            end = parse_chunk(self._data, last, self.source)
            if end is None or end.type != ChunkType.END:
                return None
            offset, _, self._lost, _ = END.unpack(payload(self._data, end, END.size, self.source))
            index = parse_chunk(self._data, offset, self.source) if HEADER_BYTES <= offset < last else None
            if index is None or index.type != ChunkType.INDEX or index.end != last:
                return None
            rows = list(INDEX.iter_unpack(payload(self._data, index, INDEX.size, self.source)))
            offsets = [row[0] for row in rows] + [offset]
            # One chunk behind the other: an index that names one many times would unfold to any size.
            if any(next_ - one < CHUNK.size for one, next_ in pairwise(offsets)):
                return None
            self._ends = dict(pairwise(offsets))
            return [Chunk(row[0], row[5], row[3], row[4], _UNSEEN, row[1], row[2], 0, 0) for row in rows]
        except TraceError:
            return None

    def _checked(self, chunk: Chunk) -> Chunk:
        if self._closed:
            raise UseAfterRelease(0, what="the trace was closed")
        # The index says where a chunk is; what it holds is looked at when it is needed.
        if chunk.nbytes != _UNSEEN:
            return chunk
        inside = HEADER_BYTES <= chunk.offset < len(self._data)
        found = parse_chunk(self._data, chunk.offset, self.source) if inside else None
        if found is None or (found.type, found.records, found.thread) != (chunk.type, chunk.records, chunk.thread):
            raise TraceError(self.source, chunk.offset, what="the index names a chunk that is not there")
        if found.end > self._ends[chunk.offset]:
            raise TraceError(self.source, chunk.offset, what="a chunk reaches into the one behind it")
        return found

    def _followed(self) -> list[Chunk]:
        chunks, offset = [], HEADER_BYTES
        while (chunk := parse_chunk(self._data, offset, self.source)) is not None:
            chunks.append(chunk)
            offset = chunk.end
        return chunks

    def _learn(self) -> None:
        for named in self.chunks:
            if named.type == ChunkType.DEFINITIONS:
                chunk = self._checked(named)
                data = payload(self._data, chunk, 0, self.source)
                self.names.learn(data, chunk.records, self.source, chunk.offset + CHUNK.size)


def _time(event: Event) -> Any:
    return event[0]
