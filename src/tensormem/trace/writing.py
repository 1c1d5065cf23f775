"""Owns: writing a `.tmt` file from Python: header, definitions, events, index and end, as the recorder does natively.

For traces that were made from others. Must not know: where the events come from.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import BinaryIO

from tensormem.trace.format import (
    CHUNK,
    CHUNK_MAGIC,
    DEFINITION,
    END,
    EVENT_BYTES,
    HEADER,
    HEADER_BYTES,
    INDEX,
    MAGIC,
    VERSION,
    ChunkType,
)

__all__ = ["TraceWriter"]


class TraceWriter:
    """Writes one file, front to back; `close` makes it complete.

    >>> import io
    >>> out = io.BytesIO()
    >>> writer = TraceWriter(out, wall_ns=0, monotonic_ns=0)
    >>> writer.define([(1, 1, (), ("kv",))])
    >>> writer.close()
    >>> out.getvalue()[:4]
    b'\\x89TMT'
    """

    def __init__(self, out: BinaryIO, *, wall_ns: int, monotonic_ns: int, stacks: bool = False) -> None:
        self._out, self._offset = out, 0
        self._index: list[tuple[int, int, int, int, int, int]] = []
        self._events, self._last, self._sequence = 0, 0, 0
        sizes = (VERSION, HEADER_BYTES, EVENT_BYTES, int(stacks))
        head = HEADER.pack(MAGIC, *sizes, 0, wall_ns, monotonic_ns, 0, 0, 0)
        self._write(head[:-4] + struct.pack("<I", zlib.crc32(head[:-4])))

    def define(self, definitions: Iterable[tuple[int, int, tuple[int, ...], tuple[str, ...]]]) -> None:
        """Names for numbers: kind, number, numbers, texts. Before the events that need them."""
        parts = [_definition(*each) for each in definitions]
        if parts:
            self._chunk(ChunkType.DEFINITIONS, b"".join(parts), len(parts))

    def events(self, records: bytes, thread: int, first: int, last: int) -> None:
        """Events of one thread, 64 bytes each, the earliest and the latest of which are at `first` and `last`."""
        count = len(records) // EVENT_BYTES
        if count:
            self._chunk(ChunkType.EVENTS, records, count, thread, first, last)
            self._events += count
            self._last = max(self._last, last)

    def close(self, dropped: int = 0) -> None:
        """The index and the end."""
        rows = [INDEX.pack(offset, first, last, count, thread, kind, 0, 0)
                for offset, kind, count, thread, first, last in self._index]  # fmt: skip
        index = self._offset
        self._chunk(ChunkType.INDEX, b"".join(rows), len(rows))
        self._chunk(ChunkType.END, END.pack(index, self._events, dropped, self._last), 1)

    def _chunk(
        self, kind: ChunkType, payload: bytes, count: int, thread: int = 0, first: int = 0, last: int = 0
    ) -> None:
        if kind < ChunkType.INDEX:
            self._index.append((self._offset, kind, count, thread, first, last))
        crc, number = zlib.crc32(payload), self._sequence
        head = CHUNK.pack(CHUNK_MAGIC, kind, 1, count, thread, len(payload), first, last, 0, crc, number, 0, 0)
        self._sequence += 1
        self._write(head[:-4] + struct.pack("<I", zlib.crc32(head[:-4])) + payload)

    def _write(self, data: bytes) -> None:
        self._out.write(data)
        self._offset += len(data)


def _definition(kind: int, number: int, numbers: tuple[int, ...], texts: tuple[str, ...]) -> bytes:
    encoded = [text.encode() for text in texts]
    head = DEFINITION.pack(kind, len(numbers), len(texts), 0, number)
    lengths = b"".join(struct.pack("<I", len(text)) + text for text in encoded)
    return head + struct.pack(f"<{len(numbers)}I", *numbers) + lengths
