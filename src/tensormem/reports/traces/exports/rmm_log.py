"""Owns: writing a trace as RMM's logging adaptor would have: what the program asked for, a line per call.

RMM's rows have the time of day and no date. Must not know: how RMM's own reader works.
"""

from datetime import UTC, datetime, timedelta
from typing import BinaryIO

from tensormem.trace import Event, EventKind, Trace

_ACTIONS = {EventKind.ALLOCATE: "allocate", EventKind.DEALLOCATE: "free", EventKind.FAIL: "allocate failure"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALLOCATE = 1  # as a failure names what failed


def write(trace: Trace, out: BinaryIO) -> None:
    """`Thread,Time,Action,Pointer,Size,Stream`, in local time."""
    out.write(b"Thread,Time,Action,Pointer,Size,Stream\n")
    start = trace.wall_ns or 0
    for event in trace.events():
        action = _ACTIONS.get(event.kind)
        refused = event.kind is EventKind.FAIL
        if action is None or event.depth or (refused and event.other != _ALLOCATE):
            continue
        out.write(f"{event.thread},{_clock(start + event.time_ns)},{action},{_rest(event, refused)}\n".encode())


def _clock(wall_ns: int) -> str:
    moment = (_EPOCH + timedelta(microseconds=wall_ns // 1000)).astimezone()
    return moment.strftime("%H:%M:%S.%f")


def _rest(event: Event, refused: bool) -> str:
    pointer = "(nil)" if refused else hex(event.address)
    return f"{pointer},{event.nbytes},{hex(event.stream) if event.stream else 0}"
