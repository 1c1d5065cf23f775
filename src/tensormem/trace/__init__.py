"""Owns: what happened, and where everything should go: recordings, traces, lifetimes, replays, plans.

`tm.trace("run.tmt")` records, `tm.trace.open("run.tmt")` reads: the module can be called.
Must not know: how it is shown.
"""

import sys

from tensormem.trace.events import Event, EventKind, Frame, Reporter
from tensormem.trace.lifetimes import Lifetime, check_lifetimes, peak_load, read_lifetimes, write_lifetimes
from tensormem.trace.namespace import TraceModule
from tensormem.trace.opening import open_trace as open
from tensormem.trace.recording import Recording, RecordingReport, counter, is_recording
from tensormem.trace.trace import BlockLife, Peak, Trace

__all__ = [
    "BlockLife",
    "Event",
    "EventKind",
    "Frame",
    "Lifetime",
    "Peak",
    "Recording",
    "RecordingReport",
    "Reporter",
    "Trace",
    "check_lifetimes",
    "counter",
    "is_recording",
    "open",
    "peak_load",
    "read_lifetimes",
    "write_lifetimes",
]

sys.modules[__name__].__class__ = TraceModule
