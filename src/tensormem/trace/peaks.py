"""Owns: the most that was out at once, and how it is found while events go by.

Must not know: whose bytes they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Peak", "RunningPeak"]


class Peak(NamedTuple):
    """The most that was out at once, when, how many blocks that were, and what was still out at the end."""

    nbytes: int
    time_ns: int
    blocks: int
    final_bytes: int
    final_blocks: int


class RunningPeak:
    """Bytes that are out while events go by, and the most there were."""

    def __init__(self, nbytes: int, blocks: int, time_ns: int) -> None:
        self.nbytes, self.blocks = nbytes, blocks
        self.peak_bytes, self.peak_blocks, self.peak_ns = nbytes, blocks, time_ns

    def add(self, nbytes: int, time_ns: int) -> None:
        """A block begins (`nbytes` above 0) or ends."""
        self.nbytes += nbytes
        self.blocks += 1 if nbytes > 0 else -1
        if self.nbytes > self.peak_bytes:
            self.peak_bytes, self.peak_blocks, self.peak_ns = self.nbytes, self.blocks, time_ns

    def follow(self, times: Any, nbytes: Any, blocks: Any) -> None:
        """The same as many calls of `add`, given the running sums of what they would add."""
        highest = int(nbytes.argmax())
        if self.nbytes + int(nbytes[highest]) > self.peak_bytes:
            self.peak_bytes, self.peak_ns = self.nbytes + int(nbytes[highest]), int(times[highest])
            self.peak_blocks = self.blocks + int(blocks[highest])
        self.nbytes, self.blocks = self.nbytes + int(nbytes[-1]), self.blocks + int(blocks[-1])

    def peak(self) -> Peak:
        """What it came to."""
        # In a window, more can be given back than was seen to be out: blocks from before the recording.
        return Peak(self.peak_bytes, self.peak_ns, self.peak_blocks, max(self.nbytes, 0), max(self.blocks, 0))
