"""Owns: what happened, and where everything should go: lifetimes, replays, plans.

Must not know: how it is shown.
"""

from tensormem.trace.lifetimes import Lifetime, check_lifetimes, peak_load, read_lifetimes, write_lifetimes
from tensormem.trace.plan_file import load_plan, save_plan
from tensormem.trace.planning import Plan, PlanProgress, plan
from tensormem.trace.replaying import ReplayFailure, ReplayReport, ReplaySample, replay

__all__ = [
    "Lifetime",
    "Plan",
    "PlanProgress",
    "ReplayFailure",
    "ReplayReport",
    "ReplaySample",
    "check_lifetimes",
    "load_plan",
    "peak_load",
    "plan",
    "read_lifetimes",
    "replay",
    "save_plan",
    "write_lifetimes",
]
