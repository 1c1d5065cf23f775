"""Owns: the cell of shared memory in which a worker says what it is doing: it can be read after the worker died.

Must not know: what the words mean.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

__all__ = ["Cell"]

_HEAD = struct.Struct("<qqqI")
_BYTES = 4096


class Cell:
    """The process, the seed, when it began, and a note. One process writes, another one reads."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, _BYTES)
            self._map = mmap.mmap(fd, _BYTES)
        finally:
            os.close(fd)

    def begin(self, seed: int) -> None:
        """A case begins."""
        _HEAD.pack_into(self._map, 0, os.getpid(), seed, time.monotonic_ns(), 0)

    def note(self, text: str) -> None:
        """What the case is about to do."""
        data = text.encode("utf-8", "replace")[: _BYTES - _HEAD.size]
        self._map[_HEAD.size : _HEAD.size + len(data)] = data
        self._map[_HEAD.size - 4 : _HEAD.size] = struct.pack("<I", len(data))

    def end(self) -> None:
        """Nothing runs now."""
        _HEAD.pack_into(self._map, 0, 0, -1, time.monotonic_ns(), 0)

    def finish(self) -> None:
        """The process is gone; the seed and the note stay."""
        self._map[:8] = bytes(8)

    def read(self) -> tuple[int, int, float, str]:
        """Process, seed, seconds since it began, note. The process is 0 between batches."""
        pid, seed, began, length = _HEAD.unpack_from(self._map)
        note = self._map[_HEAD.size : _HEAD.size + min(length, _BYTES - _HEAD.size)]
        return pid, seed, (time.monotonic_ns() - began) / 1e9, note.decode("utf-8", "replace")
