"""Owns: traces in the formats of other tools, one file per format; each writes a `Trace` to a binary stream.

>>> import io, pathlib, tempfile
>>> from tensormem import trace
>>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
>>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\n")
>>> out = io.BytesIO()
>>> FORMATS["lifetimes"].write(trace.open(path), out)
>>> out.getvalue()
b'id,lower,upper,size\\na,0,4,16\\n'
"""

from collections.abc import Callable
from typing import BinaryIO, NamedTuple

from tensormem.reports.traces.exports import events_csv, events_json, lifetimes_csv, perfetto, rmm_log, torch_snapshot
from tensormem.trace import Trace

__all__ = ["ExportFormat", "FORMATS"]  # noqa: RUF022


class ExportFormat(NamedTuple):
    """A format to write, the usual ending of its files, what it is for, and whether it is text."""

    write: Callable[[Trace, BinaryIO], None]
    suffix: str
    opens_in: str
    is_text: bool = True


FORMATS: dict[str, ExportFormat] = {
    "rmm": ExportFormat(rmm_log.write, ".rmm.csv", "RMM's replay benchmark and log readers"),
    "torch": ExportFormat(torch_snapshot.write, ".pickle", "PyTorch's memory viewer", is_text=False),
    "perfetto": ExportFormat(perfetto.write, ".perfetto.json", "ui.perfetto.dev and chrome://tracing"),
    "csv": ExportFormat(events_csv.write, ".events.csv", "spreadsheets and data frames"),
    "json": ExportFormat(events_json.write, ".json", "programs; docs/reference/trace.schema.json is its schema"),
    "lifetimes": ExportFormat(lifetimes_csv.write, ".csv", "tensormem plan and other static allocators"),
}
