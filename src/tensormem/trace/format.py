"""Owns: the shape of a `.tmt` file: its structs, and how its numbers are told from damage.

The same is written in native/trace/file_format.hpp for the writer and in docs/reference/trace-format.md for people.
Must not know: where the bytes are.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

from tensormem.errors import TraceError
from tensormem.trace.events import EventKind

MAGIC = b"\x89TMT\r\n\x1a\n"
VERSION = 1
HEADER_BYTES = 64
EVENT_BYTES = 64
CHUNK_MAGIC = 0x4B434D54

HEADER = struct.Struct("<8s4IQqQQ2I")
CHUNK = struct.Struct("<I2H2I4Q4I")
EVENT = struct.Struct("<6Q3I4B")
DEFINITION = struct.Struct("<4HI")
TOTALS = struct.Struct("<2I2q")
PEAK = struct.Struct("<2I2qQqQ2q")
INDEX = struct.Struct("<3Q2I2HI")
END = struct.Struct("<4Q")

# By their numbers in a file; what a newer writer adds is passed over.
KINDS: dict[int, EventKind] = dict(enumerate(EventKind, 1))


class ChunkType(IntEnum):
    """What a chunk holds."""

    EVENTS = 1
    DEFINITIONS = 2
    TOTALS = 3
    INDEX = 4
    END = 5
    PEAKS = 6


class DefinitionKind(IntEnum):
    """What a definition names."""

    TAG = 1
    THREAD = 2
    RESOURCE = 3
    FRAME = 4
    STACK = 5


class PeakKind(IntEnum):
    """What a peak is of."""

    WHOLE = 1
    SPACE = 2
    TAG = 3


class RecordedPeak(NamedTuple):
    """The most and the least that was out since the last one of the same tag, and what was out in the end."""

    tag: int
    highest: int
    highest_blocks: int
    highest_ns: int
    lowest: int
    lowest_ns: int
    nbytes: int
    blocks: int


class Header(NamedTuple):
    """What a file says of itself."""

    stacks: bool
    pid: int
    wall_ns: int
    monotonic_ns: int


class Chunk(NamedTuple):
    """Where a chunk is and what it holds; `offset` is that of its header."""

    offset: int
    type: int
    records: int
    thread: int
    nbytes: int
    first_time: int
    last_time: int
    dropped: int
    payload_crc: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + CHUNK.size + self.nbytes


def parse_header(data: memoryview, source: str) -> Header:
    """The header of a file; `TraceError` when it is none of ours."""
    if len(data) < HEADER_BYTES:
        raise TraceError(source, 0, what=f"it has {len(data)} bytes, and the header alone has {HEADER_BYTES}")
    magic, version, header_bytes, event_bytes, flags, pid, wall, monotonic, _, _, crc = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise TraceError(source, 0, what="it does not begin as a trace does")
    if zlib.crc32(data[: HEADER_BYTES - 4]) != crc:
        raise TraceError(source, HEADER_BYTES - 4, what="the checksum of the header is wrong")
    if version != VERSION or header_bytes != HEADER_BYTES or event_bytes != EVENT_BYTES:
        raise TraceError(source, 8, what=f"it is of version {version}; this reader knows version {VERSION}")
    return Header(bool(flags & 1), pid, wall, monotonic)


def parse_chunk(data: memoryview, offset: int, source: str) -> Chunk | None:
    """The chunk at `offset`; None where the file ends before the chunk does: its writer was killed there."""
    if offset + CHUNK.size > len(data):
        return None
    fields = CHUNK.unpack_from(data, offset)
    magic, kind, version, count, thread, nbytes, first, last, dropped, payload_crc, _, _, crc = fields
    if magic == 0 and not any(data[offset : offset + CHUNK.size]):
        return None  # room that the file system gave and the writer did not fill
    if magic != CHUNK_MAGIC:
        raise TraceError(source, offset, what=f"no chunk begins here: {magic:#010x}")
    if zlib.crc32(data[offset : offset + CHUNK.size - 4]) != crc:
        raise TraceError(source, offset, what="the checksum of a chunk's header is wrong")
    if version != 1 or first > last:
        raise TraceError(source, offset, what=f"a chunk of version {version} from {first} to {last} makes no sense")
    if nbytes > len(data) - offset - CHUNK.size:
        return None
    return Chunk(offset, kind, count, thread, nbytes, first, last, dropped, payload_crc)


def payload(data: memoryview, chunk: Chunk, record_bytes: int, source: str) -> memoryview:
    """The bytes of a chunk, proven whole; `record_bytes` is the size of its records, 0 if they vary."""
    start = chunk.offset + CHUNK.size
    taken = data[start : start + chunk.nbytes]
    if record_bytes and chunk.records * record_bytes != chunk.nbytes:
        raise TraceError(source, chunk.offset, what=f"{chunk.records} records cannot have {chunk.nbytes} bytes")
    if zlib.crc32(taken) != chunk.payload_crc:
        raise TraceError(source, start, what="the checksum of a chunk is wrong")
    return taken
