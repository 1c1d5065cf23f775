"""Owns: the stop where two streams do the same work side by side that one does piece by piece."""

import ctypes
import hashlib
import os
import threading
import time
from typing import NamedTuple

from rich.text import Text

import tensormem as tm
from tensormem.streams import Stream, default_stream
from tensormem.units import format_seconds
from tour_stops.guide import Guide

TITLE = "Two streams at once"
BLOCK_BYTES = 32 * 2**20
PIECES = 6  # per lane
WIDTH = 60


class Piece(NamedTuple):
    """One checksum of a block: which lane it was for, and when."""

    lane: str
    start: float
    end: float


class Lanes:
    """Two blocks to work on, and a note of every piece of work done."""

    def __init__(self) -> None:
        mr = tm.mr.HostMemoryResource()
        self.blocks = {lane: mr.allocate(BLOCK_BYTES, tag=f"tour {lane}") for lane in "AB"}
        self.done: list[Piece] = []
        for block in self.blocks.values():
            mr.driver.fill(block, 7, 1, (BLOCK_BYTES, 1, 1))

    def work(self, lane: str) -> None:
        """A checksum of the lane's block: long enough to see, and done without Python's lock."""
        start = time.perf_counter()
        hashlib.sha256((ctypes.c_char * BLOCK_BYTES).from_address(self.blocks[lane].ptr))
        self.done.append(Piece(lane, start, time.perf_counter()))

    def run_inline(self) -> list[Piece]:
        self.done = []
        stream = default_stream()
        for lane in self.blocks:
            for _ in range(PIECES):
                stream.launch(self.work, lane)
        return self.done

    def run_side_by_side(self) -> tuple[list[Piece], bool]:
        """The pieces, and whether the two streams met: each waits for the other, so both must be running."""
        self.done = []
        meeting, met = threading.Barrier(2, timeout=30), []
        with Stream(tm.drivers.host()) as first, Stream(tm.drivers.host()) as second:
            for stream in (first, second):
                stream.launch(lambda: met.append(meeting.wait()))
            for _ in range(PIECES):
                first.launch(self.work, "A")
                second.launch(self.work, "B")
            first.synchronize()
            second.synchronize()
        return self.done, len(met) == 2


def seconds_of(pieces: list[Piece]) -> float:
    return max(piece.end for piece in pieces) - min(piece.start for piece in pieces)


def lane_line(title: str, pieces: list[Piece], lane: str, scale: float) -> Text:
    """A line of WIDTH places, lettered where the lane was at work."""
    start = min(piece.start for piece in pieces)
    places = [" "] * (WIDTH + 1)
    for piece in pieces:
        if piece.lane == lane:
            first, last = (int((moment - start) / scale * WIDTH) for moment in (piece.start, piece.end))
            # Its last place stays free, so that one piece can be told from the next.
            places[first:last] = lane * (last - first - 1) + " " if last > first else ""
    bar = Text("".join(places), style="cyan" if lane == "A" else "magenta")
    return Text(f"{title:<15}{lane} |") + bar + Text("|")


def show(guide: Guide) -> None:
    lanes = Lanes()
    inline = lanes.run_inline()
    together, met = lanes.run_side_by_side()
    scale = max(seconds_of(inline), seconds_of(together))
    for title, pieces in (("default stream", inline), ("two streams", together)):
        for lane in lanes.blocks:
            guide.draw(lane_line(title, pieces, lane, scale))
    guide.say(
        f"{2 * PIECES} checksums of 32 MiB: {format_seconds(seconds_of(inline))} one after the other, "
        f"{format_seconds(seconds_of(together))} on two streams "
        f"({len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f})"
    )
    guide.expect("both streams were running at the same moment", met)
    guide.expect("every piece of work was done once", len(inline) == len(together) == 2 * PIECES)
