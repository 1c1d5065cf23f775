"""Owns: which part of a trace a page shows. A page is smooth with a million events; of a longer trace it shows a
window: the one that was asked for, or the one around the highest usage.

Must not know: what a page looks like.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tensormem.errors import InvalidArgument
from tensormem.reports.page.overview import overview_of
from tensormem.trace import Trace
from tensormem.trace.file import TraceFile

MOST_EVENTS = 1_000_000
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "": 10**9}
_TIME = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,9})?) ?(?P<unit>ns|us|ms|s|)")


class Window(NamedTuple):
    """From `start_ns` up to and without `end_ns`; `why` says in words why it is not the whole trace, "" if it is.

    >>> Window(0, 10).is_whole
    True
    """

    start_ns: int
    end_ns: int
    why: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return not self.why


def parse_window(text: str, *, steps: bool = False) -> tuple[int, int | None]:
    """The two times of "from:to"; each a number with ns, us, ms or s (seconds without), and either may be left out.

    Lifetimes count steps: there a number without a unit is one of those.

    >>> parse_window("1.5s:2s"), parse_window("250ms:"), parse_window(":3"), parse_window("100:200", steps=True)
    ((1500000000, 2000000000), (250000000, None), (0, 3000000000), (100, 200))
    """
    start, colon, end = text.partition(":")
    if not colon:
        raise InvalidArgument(f"a window is written from:to, such as 1.5s:2s, not {text!r:.60}")
    low = _nanoseconds(start, steps=steps) if start.strip() else 0
    high = _nanoseconds(end, steps=steps) if end.strip() else None
    if high is not None and high <= low:
        raise InvalidArgument(f"a window begins before it ends, not at {start.strip()} and {end.strip()}")
    return low, high


def window_of(trace: Trace, start_ns: int = 0, end_ns: int | None = None, *, most: int = MOST_EVENTS) -> Window:
    """The part of a trace that a page shows: what was asked for, but no more than so many events (by whole chunks).

    >>> import pathlib, tempfile
    >>> import tensormem as tm
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> window_of(tm.trace.open(path)).is_whole, window_of(tm.trace.open(path), 3, 5)
    (True, Window(start_ns=3, end_ns=5, why='the window that was asked for'))
    """
    last = trace.duration_ns + 1
    start_ns = max(start_ns, trace.bounds[0])
    end_ns = min(trace.bounds[1] if end_ns is None else end_ns, trace.bounds[1])
    asked = start_ns > 0 or end_ns < last
    if not asked and trace.event_count <= most:
        return Window(0, last)
    if start_ns >= last:
        raise InvalidArgument(f"the window begins at {start_ns:,} ns, and the trace ends at {last - 1:,} ns")
    if asked:
        low, high = start_ns, min(last, end_ns)
        fitting = _fit(trace, low, high, most)
        cut = "" if fitting == high else f", cut off after about {most:,} events"
        return Window(low, fitting, f"the window that was asked for{cut}")
    low, high, count = _around_the_peak(_counts(trace), overview_of(trace).peak_ns, most)
    high = max(min(high, last), low + 1)  # many events of one moment are one piece too
    return Window(low, high, f"{count:,} of {trace.event_count:,} events, around the highest usage")


def _nanoseconds(text: str, *, steps: bool) -> int:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(f"{text.strip()!r:.40} is no time; write 1.5s, 20ms, 300us or 5000ns")
    whole, _, fraction = found["number"].partition(".")
    scale = 1 if steps and not found["unit"] else _UNITS[found["unit"]]
    return int(whole) * scale + int(fraction.ljust(9, "0") or 0) * scale // 10**9


def _counts(trace: Trace) -> list[tuple[int, int, int]]:
    """(first time, last time, events) of consecutive pieces of a trace."""
    if isinstance(trace.store, TraceFile):
        return trace.store.event_chunks()
    return [(event.time_ns, event.time_ns, 1) for event in trace.store.events()]


def _fit(trace: Trace, start_ns: int, end_ns: int, most: int) -> int:
    """The latest end up to `end_ns` such that the pieces from `start_ns` on hold no more events than that."""
    total = 0
    for first, last, count in _counts(trace):
        if last < start_ns or first >= end_ns:
            continue
        # One piece is shown in any case, however long it is.
        if total and total + count > most:
            return max(first, start_ns + 1)
        total += count
    return end_ns


def _around_the_peak(pieces: list[tuple[int, int, int]], highest: int, most: int) -> tuple[int, int, int]:
    """Start, end and events of the pieces around the highest total: first those before it up to three quarters of what
    there is room for, then those behind it, then more of those before."""
    after = max(sum(1 for piece in pieces if piece[0] <= highest), 1)
    first = after - 1  # one piece is shown in any case, however long it is
    count = pieces[first][2]
    for room in (most * 3 // 4, most):
        while first > 0 and count + pieces[first - 1][2] <= room:
            first -= 1
            count += pieces[first][2]
        while after < len(pieces) and room == most * 3 // 4 and count + pieces[after][2] <= most:
            count += pieces[after][2]
            after += 1
    start = pieces[first][0] if first else 0
    return start, pieces[after][0] if after < len(pieces) else 2**64, count
