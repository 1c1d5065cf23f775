"""Owns: the stop where mistakes are made on purpose and caught, with nothing changed."""

from collections.abc import Callable

import tensormem as tm
from tour_stops.guide import Guide

TITLE = "Mistakes, caught"


def caught(make_mistake: Callable[[], object], expected: type[tm.TensormemError]) -> tm.TensormemError | None:
    """The error of the expected kind, or None if nothing was noticed."""
    try:
        make_mistake()
    except expected as error:
        return error
    return None


def show(guide: Guide) -> None:
    mr, other = tm.mr.HostMemoryResource(), tm.mr.HostMemoryResource()
    freed = mr.allocate("1MiB", tag="twice")
    mr.deallocate(freed)
    live = mr.allocate("1MiB", tag="kept")
    before = mr.bytes_outstanding
    mistakes: list[tuple[str, Callable[[], object], type[tm.TensormemError]]] = [
        ("a double free", lambda: mr.deallocate(freed), tm.errors.UseAfterFree),
        ("a block given back to the wrong resource", lambda: other.deallocate(live), tm.errors.ForeignBlock),
        ("a size that is none", lambda: mr.allocate("12 potatoes"), tm.errors.InvalidSize),
    ]
    for what, make_mistake, expected in mistakes:
        error = caught(make_mistake, expected)
        guide.say(f"{expected.__name__}: {error}")
        guide.expect(f"{what} was caught, and nothing changed", error is not None and mr.bytes_outstanding == before)
    mr.deallocate(live)
