"""Owns: what happened, and where everything should go: recordings, traces, lifetimes, replays, plans.

`tm.trace("run.tmt")` records, `tm.trace.open("run.tmt")` reads: the module can be called.
Must not know: how it is shown.
"""

import sys

from tensormem.public_functions import explain_misspellings
from tensormem.trace.block_lives import BlockLife
from tensormem.trace.events import Event, EventKind, Frame, Reporter
from tensormem.trace.lifetimes import Lifetime, check_lifetimes, peak_load, read_lifetimes, write_lifetimes
from tensormem.trace.merging import MergedSource, merge
from tensormem.trace.namespace import TraceModule
from tensormem.trace.opening import open_trace as open
from tensormem.trace.peaks import Peak
from tensormem.trace.plan_file import load_plan, save_plan
from tensormem.trace.planning import Plan, PlanProgress, plan
from tensormem.trace.recording import Recording, RecordingReport, counter, is_recording, start
from tensormem.trace.replaying import ReplayFailure, ReplayReport, ReplaySample, replay, replay_spaces
from tensormem.trace.trace import Trace
from tensormem.trace.workload import Workload, workload_of, workloads_by_space

__all__ = [
    "BlockLife",
    "Event",
    "EventKind",
    "Frame",
    "Lifetime",
    "MergedSource",
    "Peak",
    "Plan",
    "PlanProgress",
    "Recording",
    "RecordingReport",
    "ReplayFailure",
    "ReplayReport",
    "ReplaySample",
    "Reporter",
    "Trace",
    "Workload",
    "check_lifetimes",
    "counter",
    "is_recording",
    "load_plan",
    "merge",
    "open",
    "peak_load",
    "plan",
    "read_lifetimes",
    "replay",
    "replay_spaces",
    "save_plan",
    "start",
    "workload_of",
    "workloads_by_space",
    "write_lifetimes",
]

sys.modules[__name__].__class__ = TraceModule

explain_misspellings(globals())
