"""Owns: a file of lifetimes as a trace: each block is an allocation at its `lower` and a deallocation at its `upper`.

Must not know: how such a file is parsed; trace/lifetimes.py does.
"""

from __future__ import annotations

import io

from tensormem.trace.definitions import Names
from tensormem.trace.events import Event, EventKind, Reporter
from tensormem.trace.lifetimes import COLUMNS, Lifetime, read_lifetimes
from tensormem.trace.listed import ListedEvents
from tensormem.trace.trace import Trace

_HEADER = ",".join(COLUMNS).encode()
_RESOURCE = 1


def matches(head: bytes) -> bool:
    """Whether a file that begins like this holds lifetimes."""
    return head.startswith(_HEADER)


def read(data: bytes, source: str) -> Trace:
    """The trace of a file of lifetimes; `InvalidLifetimes` when it breaks a rule."""
    text = io.StringIO(data.decode("utf-8", "surrogateescape"), newline="")
    text.name = source
    lifetimes = read_lifetimes(text)
    names = Names()
    names.reporters[_RESOURCE] = Reporter(_RESOURCE, 0, "lifetimes", "main")
    store = ListedEvents(_events(lifetimes), names)
    return Trace(store, source=source, format="lifetimes", lifetimes=lifetimes)


def _events(lifetimes: list[Lifetime]) -> list[Event]:
    start = min((life.lower for life in lifetimes), default=0)
    events = []
    for generation, (name, lower, upper, size) in enumerate(lifetimes, 1):
        fields = {"nbytes": size, "generation": generation, "resource": _RESOURCE, "tag": name}
        events.append((lower - start, 1, Event(lower - start, EventKind.ALLOCATE, **fields)))  # type: ignore[arg-type]
        events.append((upper - start, 0, Event(upper - start, EventKind.DEALLOCATE, **fields)))  # type: ignore[arg-type]
    # At one moment what ends comes before what begins: lifetimes are half-open.
    events.sort(key=lambda entry: entry[:2])
    return [event for _, _, event in events]
