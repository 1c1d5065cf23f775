"""Owns: the lines of a program that hold most at its peak and that allocate most, by thread, and by size.

A block belongs to the innermost line of the program itself: what a library does inside counts for whoever called it.
Must not know: how it is drawn.
"""

from __future__ import annotations

import os
import stat
import sysconfig
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from tensormem.trace import BlockLife, Frame, Trace

__all__ = ["CallSite", "Share", "SizeClass", "call_sites", "shares_by_thread", "size_classes", "source_line"]

_LIBRARIES = (
    "/site-packages/",
    "/dist-packages/",
    "/tensormem/startup/",
    "<frozen ",
    sysconfig.get_path("stdlib") + "/",
)
_MOST_SOURCE_BYTES = 8 * 2**20


class Share(NamedTuple):
    """What some of the blocks come to: all that were allocated, and those that were out at the peak."""

    nbytes: int = 0
    blocks: int = 0
    peak_bytes: int = 0
    peak_blocks: int = 0

    def plus(self, nbytes: int, *, at_peak: bool) -> Share:
        """With one block more.

        >>> Share().plus(8, at_peak=True)
        Share(nbytes=8, blocks=1, peak_bytes=8, peak_blocks=1)
        """
        held = nbytes if at_peak else 0
        return Share(self.nbytes + nbytes, self.blocks + 1, self.peak_bytes + held, self.peak_blocks + int(at_peak))


class CallSite(NamedTuple):
    """A line of a program, and its share."""

    frame: Frame
    share: Share

    def as_json(self) -> dict[str, Any]:
        """Raw values for programs."""
        return {**self.frame._asdict(), "source": source_line(self.frame), **self.share._asdict()}


class SizeClass(NamedTuple):
    """The blocks of at least `least` bytes and less than twice as many."""

    least: int
    blocks: int
    nbytes: int


def call_sites(trace: Trace, blocks: Iterable[BlockLife], peak_ns: int) -> list[CallSite]:
    """Every line that allocated, the one that allocated most first; [] when no calls were recorded.

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.tmt"
    >>> with tm.trace(path, stacks=True):
    ...     block = tm.mr.HostMemoryResource().allocate(1000)
    >>> trace = tm.trace.open(path)
    >>> [site.share.nbytes for site in call_sites(trace, trace.blocks(), 0)]
    [1000]
    """
    shares: defaultdict[int, Share] = defaultdict(Share)
    for block in blocks:
        if block.stack:
            shares[block.stack] = shares[block.stack].plus(block.nbytes, at_peak=is_out(block, peak_ns))
    sites: dict[Frame, Share] = {}
    for stack, share in shares.items():
        frame = _site(trace.names.stack(stack))
        if frame is not None:
            before = sites.get(frame, Share())
            sites[frame] = Share(*(one + other for one, other in zip(before, share, strict=True)))
    return sorted((CallSite(*pair) for pair in sites.items()), key=lambda site: -site.share.nbytes)


def shares_by_thread(trace: Trace, blocks: Iterable[BlockLife], peak_ns: int) -> dict[str, Share]:
    """What each thread allocated, by its name and number."""
    shares: defaultdict[int, Share] = defaultdict(Share)
    for block in blocks:
        shares[block.thread] = shares[block.thread].plus(block.nbytes, at_peak=is_out(block, peak_ns))
    names = trace.names.threads
    return {f"{names.get(thread) or 'thread'} {thread}": shares[thread] for thread in sorted(shares)}


def size_classes(blocks: Iterable[BlockLife]) -> list[SizeClass]:
    """How many blocks there were of which size, by powers of two; classes without blocks are left out."""
    counts: defaultdict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for block in blocks:
        least = 1 << max(block.nbytes.bit_length() - 1, 0)
        count, nbytes = counts[least]
        counts[least] = count + 1, nbytes + block.nbytes
    return [SizeClass(least, *counts[least]) for least in sorted(counts)]


def is_out(block: BlockLife, time_ns: int) -> bool:
    """Whether a block was out at a time."""
    return (block.start_ns or 0) <= time_ns and (block.end_ns is None or block.end_ns > time_ns)


@cache
def source_line(frame: Frame) -> str:
    """The text of a line, where its file is here and is Python; "" otherwise. A trace may name any file."""
    if not frame.file.endswith((".py", ".pyx")):
        return ""
    try:
        with open(os.open(frame.file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST_SOURCE_BYTES:
                return ""
            lines = file.read(_MOST_SOURCE_BYTES).splitlines()
    except (OSError, ValueError):
        return ""
    if not 0 < frame.line <= len(lines):
        return ""
    return lines[frame.line - 1].decode("utf-8", "replace").strip()


def _site(frames: tuple[Frame, ...]) -> Frame | None:
    own = (frame for frame in frames if not any(folder in frame.file for folder in _LIBRARIES))
    return next(own, frames[0] if frames else None)
