"""Owns: what makes `tensormem.trace` a module that can be called: `tm.trace("run.tmt")` records, `tm.trace.open` reads.

Must not know: how either is done.
"""

from __future__ import annotations

from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING

from tensormem.trace.recording import Recording

if TYPE_CHECKING:
    from tensormem.trace import block_lives as _block_lives
    from tensormem.trace import events as _events
    from tensormem.trace import lifetimes as _lifetimes
    from tensormem.trace import merging as _merging
    from tensormem.trace import opening as _opening
    from tensormem.trace import peaks as _peaks
    from tensormem.trace import plan_file as _plan_file
    from tensormem.trace import planning as _planning
    from tensormem.trace import recording as _recording
    from tensormem.trace import replaying as _replaying
    from tensormem.trace import trace as _trace
    from tensormem.trace import workload as _workload


class TraceModule(ModuleType):
    """A module that can be called."""

    if TYPE_CHECKING:
        # A type checker sees this class where the module is, and these are all its public names.
        BlockLife = _block_lives.BlockLife
        Event = _events.Event
        EventKind = _events.EventKind
        Frame = _events.Frame
        Lifetime = _lifetimes.Lifetime
        MergedSource = _merging.MergedSource
        Peak = _peaks.Peak
        Plan = _planning.Plan
        PlanProgress = _planning.PlanProgress
        Recording = _recording.Recording
        RecordingReport = _recording.RecordingReport
        ReplayFailure = _replaying.ReplayFailure
        ReplayReport = _replaying.ReplayReport
        ReplaySample = _replaying.ReplaySample
        Reporter = _events.Reporter
        Trace = _trace.Trace
        Workload = _workload.Workload
        open = staticmethod(_opening.open_trace)
        check_lifetimes = staticmethod(_lifetimes.check_lifetimes)
        counter = staticmethod(_recording.counter)
        is_recording = staticmethod(_recording.is_recording)
        load_plan = staticmethod(_plan_file.load_plan)
        merge = staticmethod(_merging.merge)
        peak_load = staticmethod(_lifetimes.peak_load)
        plan = staticmethod(_planning.plan)
        read_lifetimes = staticmethod(_lifetimes.read_lifetimes)
        replay = staticmethod(_replaying.replay)
        replay_spaces = staticmethod(_replaying.replay_spaces)
        save_plan = staticmethod(_plan_file.save_plan)
        start = staticmethod(_recording.start)
        workload_of = staticmethod(_workload.workload_of)
        workloads_by_space = staticmethod(_workload.workloads_by_space)
        write_lifetimes = staticmethod(_lifetimes.write_lifetimes)

    def __call__(
        self,
        path: str | PathLike[str],
        *,
        stacks: bool = False,
        overwrite: bool = False,
        flush_interval: float = 0.05,
    ) -> _recording.Recording:
        """A recording into `path`, which begins with `with`. With `stacks`, events have their Python calls."""
        return Recording(path, stacks=stacks, overwrite=overwrite, flush_interval=flush_interval)
