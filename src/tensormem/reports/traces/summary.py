"""Owns: a trace in short: events by kind, the peaks, the largest blocks, what was never given back, what failed.

Must not know: how it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from tensormem.trace import BlockLife, EventKind, Peak, Trace

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
    failures: int

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
            "largest": [_block_json(block) for block in self.largest],
            "outstanding": [_block_json(block) for block in self.outstanding],
            "outstanding_bytes": self.outstanding_bytes,
            "outstanding_blocks": self.outstanding_blocks,
            "failures": self.failures,
        }


def summarize(trace: Trace, *, most: int = 10) -> TraceSummary:
    """The summary of a trace, with at most so many of the largest blocks and of those never given back."""
    kinds, threads = trace.census()
    blocks = list(trace.blocks())
    outstanding = [block for block in blocks if block.end_ns is None]
    return TraceSummary(
        source=trace.source,
        format=trace.format,
        complete=trace.complete,
        events=sum(kinds.values()),
        dropped=trace.dropped,
        duration_ns=trace.duration_ns,
        kinds={kind.value: kinds[kind] for kind in EventKind if kinds[kind]},
        threads=threads,
        spaces=trace.peaks("space"),
        tags=trace.peaks("tag"),
        resources=trace.peaks("resource"),
        largest=tuple(nlargest(most, blocks, key=_nbytes)),
        outstanding=tuple(nlargest(most, outstanding, key=_nbytes)),
        outstanding_bytes=sum(block.nbytes for block in outstanding),
        outstanding_blocks=len(outstanding),
        failures=kinds[EventKind.FAIL],
    )


def _nbytes(block: BlockLife) -> int:
    return block.nbytes


def _peaks_json(peaks: dict[str, Peak]) -> dict[str, dict[str, int]]:
    return {name: peak._asdict() for name, peak in peaks.items() if name}


def _block_json(block: BlockLife) -> dict[str, Any]:
    return block._asdict()
