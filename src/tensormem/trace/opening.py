"""Owns: `open`: which kind of trace a file is, by its first bytes and not by its name, and the `Trace` in it.

Must not know: what any format looks like inside.
"""

from __future__ import annotations

import sys
import tempfile
from os import PathLike, fspath
from pathlib import Path

from tensormem.errors import TraceError
from tensormem.trace.file import TraceFile
from tensormem.trace.format import MAGIC
from tensormem.trace.importers import lifetimes_csv, rmm_log, torch_snapshot
from tensormem.trace.trace import Trace

FORMATS = {"tmt": "a recording", "torch": "a PyTorch memory snapshot", "rmm": "an RMM log", "lifetimes": "lifetimes"}
_IMPORTERS = (torch_snapshot, rmm_log, lifetimes_csv)


def open_trace(path: str | PathLike[str]) -> Trace:
    """The trace in a file: a recording (`.tmt`), a PyTorch memory snapshot, an RMM log, or a CSV of lifetimes.

    What it is, its first bytes say. "-" is standard input. `TraceError` for anything else, with the offset and why.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "step.csv"
    >>> _ = path.write_text("id,lower,upper,size\\na,0,4,16\\nb,2,6,8\\n")
    >>> trace = open_trace(path)
    >>> trace.format, trace.lifetimes()[0].size, trace.peaks()["main"].nbytes
    ('lifetimes', 16, 24)
    """
    source = fspath(path)
    if source == "-":
        return _from_stdin()
    with open(source, "rb") as file:
        head = file.read(256)
        if head.startswith(MAGIC[:4]):
            return Trace(TraceFile(source), source=source, format="tmt")
        return _import(head + file.read(), source)


def _from_stdin() -> Trace:
    data = sys.stdin.buffer.read()
    if not data.startswith(MAGIC[:4]):
        return _import(data, "-")
    # A recording is mapped, and a pipe cannot be; the name is gone at once, the file with the mapping.
    with tempfile.NamedTemporaryFile(suffix=".tmt") as kept:
        Path(kept.name).write_bytes(data)
        return Trace(TraceFile(kept.name), source="-", format="tmt")


def _import(data: bytes, source: str) -> Trace:
    head = data[:256].lstrip(b"\xef\xbb\xbf")
    for importer in _IMPORTERS:
        if importer.matches(head):
            trace: Trace = importer.read(data, source)
            return trace
    known = ", ".join(FORMATS.values())
    raise TraceError(source, 0, what=f"it begins with {head[:16]!r}, which is none of: {known}")
