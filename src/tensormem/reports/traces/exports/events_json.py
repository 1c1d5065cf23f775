"""Owns: writing a trace as JSON, as docs/reference/trace.schema.json says: raw numbers, and a version."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from tensormem.trace import Event, EventKind, Trace

VERSION = 1
_ALWAYS = ("time_ns", "kind")


def write(trace: Trace, out: BinaryIO) -> None:
    """One document; events are written one a line, so that a large trace is never in memory as a whole."""
    head = json.dumps(_head(trace), ensure_ascii=False)
    out.write(head[:-1].encode() + b', "events": [')
    for number, event in enumerate(trace.events()):
        out.write((b",\n" if number else b"\n") + json.dumps(_event(event), ensure_ascii=False).encode())
    out.write(b"\n]}\n")


def _head(trace: Trace) -> dict[str, Any]:
    return {
        "version": VERSION,
        "format": "tensormem-trace",
        "source": trace.source,
        "imported_from": trace.format,
        "complete": trace.complete,
        "dropped_events": trace.dropped,
        "duration_ns": trace.duration_ns,
        "wall_ns": trace.wall_ns,
        "resources": [reporter._asdict() for _, reporter in sorted(trace.names.reporters.items())],
        "threads": [{"id": number, "name": name} for number, name in sorted(trace.names.threads.items())],
        "stacks": [{"id": number, "frames": list(_frames(trace, number))} for number in sorted(trace.names.stacks)],
    }


def _frames(trace: Trace, stack: int) -> Iterator[dict[str, Any]]:
    return (frame._asdict() for frame in trace.names.stack(stack))


def _event(event: Event) -> dict[str, Any]:
    # What is 0 or "" says nothing, but the value of a counter may be 0.
    kept = (*_ALWAYS, "other") if event.kind is EventKind.COUNTER else _ALWAYS
    return {name: value for name, value in event._asdict().items() if value or name in kept}
