"""Owns: writing a trace as a table: one event a line, everything that is known of it."""

import csv
import io
from typing import BinaryIO

from tensormem.trace import Event, Trace

COLUMNS = (*Event._fields, "space", "resource_name")


def write(trace: Trace, out: BinaryIO) -> None:
    """A header and a line per event, by time."""
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    names = trace.names
    for event in trace.events():
        reported = event.resource != 0
        space, resource = (names.space(event.resource), names.resource(event.resource)) if reported else ("", "")
        rows.writerow((*event, space, resource))
    text.detach()
