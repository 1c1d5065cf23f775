"""Owns: a trace in short: events by kind, the peaks, the lines behind them, the largest blocks, what was never given
back or is still in use, what failed.

Must not know: how it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from tensormem.reports.traces.call_sites import (
    CallSite,
    Share,
    SizeClass,
    call_sites,
    shares_by_thread,
    size_classes,
)
from tensormem.trace import BlockLife, EventKind, Frame, Peak, Trace

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class TraceSummary:
    """What a trace comes to.

    >>> import pathlib, tempfile
    >>> from tensormem import trace
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> summarize(trace.open(path)).spaces["main"].nbytes
    24
    """

    source: str
    format: str
    complete: bool
    events: int
    dropped: int
    duration_ns: int
    kinds: dict[str, int]
    threads: int
    spaces: dict[str, Peak]
    tags: dict[str, Peak]
    resources: dict[str, Peak]
    largest: tuple[BlockLife, ...]
    outstanding: tuple[BlockLife, ...]
    outstanding_bytes: int
    outstanding_blocks: int
    in_use_bytes: int
    in_use_blocks: int
    failures: int
    holding: tuple[CallSite, ...]
    allocating: tuple[CallSite, ...]
    by_thread: dict[str, Share]
    sizes: tuple[SizeClass, ...]
    frames: dict[int, tuple[Frame, ...]]

    @property
    def peak_bytes(self) -> int:
        """The most that the program had at once, over all spaces."""
        return self.spaces[""].nbytes if "" in self.spaces else 0

    def as_json(self) -> dict[str, Any]:
        """Raw values with a version, for programs."""
        return {
            "version": _VERSION,
            "source": self.source,
            "format": self.format,
            "complete": self.complete,
            "events": self.events,
            "dropped_events": self.dropped,
            "duration_ns": self.duration_ns,
            "kinds": self.kinds,
            "threads": self.threads,
            "peak_bytes": self.peak_bytes,
            "spaces": _peaks_json(self.spaces),
            "tags": _peaks_json(self.tags),
            "resources": _peaks_json(self.resources),
            "largest": [self._block_json(block) for block in self.largest],
            "outstanding": [self._block_json(block) for block in self.outstanding],
            "outstanding_bytes": self.outstanding_bytes,
            "outstanding_blocks": self.outstanding_blocks,
            "in_use_bytes": self.in_use_bytes,
            "in_use_blocks": self.in_use_blocks,
            "failures": self.failures,
            "holding_at_peak": [site.as_json() for site in self.holding],
            "allocating": [site.as_json() for site in self.allocating],
            "by_thread": {name: share._asdict() for name, share in self.by_thread.items()},
            "sizes": [one._asdict() for one in self.sizes],
        }

    def _block_json(self, block: BlockLife) -> dict[str, Any]:
        frames = [frame._asdict() for frame in self.frames.get(block.stack, ())]
        return {**block._asdict(), "frames": frames}


def summarize(trace: Trace, *, most: int = 10) -> TraceSummary:
    """The summary of a trace, with at most so many lines, largest blocks and blocks that were never given back.

    What a library of others still had at the end, it still uses: only tensormem's own blocks count as never given back.
    """
    kinds, threads = trace.census()
    blocks = list(trace.blocks())
    foreign = {number for number, reporter in trace.names.reporters.items() if reporter.foreign}
    left = [block for block in blocks if block.end_ns is None]
    outstanding = [block for block in left if block.resource not in foreign]
    in_use = [block for block in left if block.resource in foreign]
    spaces = trace.peaks("space")
    peak_ns = spaces[""].time_ns if "" in spaces else 0
    sites = call_sites(trace, blocks, peak_ns)
    holding = sorted((site for site in sites if site.share.peak_bytes), key=lambda site: -site.share.peak_bytes)
    largest = tuple(nlargest(most, blocks, key=_nbytes))
    shown = (*largest, *nlargest(most, outstanding, key=_nbytes))
    return TraceSummary(
        source=trace.source,
        format=trace.format,
        complete=trace.complete,
        events=sum(kinds.values()),
        dropped=trace.dropped,
        duration_ns=trace.duration_ns,
        kinds={kind.value: kinds[kind] for kind in EventKind if kinds[kind]},
        threads=threads,
        spaces=spaces,
        tags=trace.peaks("tag"),
        resources=trace.peaks("resource"),
        largest=largest,
        outstanding=tuple(nlargest(most, outstanding, key=_nbytes)),
        outstanding_bytes=sum(block.nbytes for block in outstanding),
        outstanding_blocks=len(outstanding),
        in_use_bytes=sum(block.nbytes for block in in_use),
        in_use_blocks=len(in_use),
        failures=kinds[EventKind.FAIL],
        holding=tuple(holding[:most]),
        allocating=tuple(sites[:most]),
        by_thread=shares_by_thread(trace, blocks, peak_ns),
        sizes=tuple(size_classes(blocks)),
        frames={block.stack: trace.stack(block) for block in shown},
    )


def _nbytes(block: BlockLife) -> int:
    return block.nbytes


def _peaks_json(peaks: dict[str, Peak]) -> dict[str, dict[str, int]]:
    return {name: peak._asdict() for name, peak in peaks.items() if name}
