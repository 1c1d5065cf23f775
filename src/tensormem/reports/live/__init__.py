"""Owns: what the memory of this process looks like now: resources, pools, tenants, budgets, spaces, rates.

A snapshot is plain data with stable names, taken without stopping anybody; `tensormem top` shows it, the metrics count
from it. Must not know: sockets, screens, and other monitors.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.reports.live.pools import BudgetFigures, PoolFigures, TenantFigures
from tensormem.reports.live.pressure import Pressure
from tensormem.reports.live.rates import Rate, RateHistory
from tensormem.reports.live.resources import ResourceFigures
from tensormem.reports.live.snapshot import Snapshot, SpaceFigures, Totals, memory_stats, take_snapshot

__all__ = [
    "BudgetFigures",
    "PoolFigures",
    "Pressure",
    "Rate",
    "RateHistory",
    "ResourceFigures",
    "Snapshot",
    "SpaceFigures",
    "TenantFigures",
    "Totals",
    "memory_stats",
    "take_snapshot",
]

explain_misspellings(globals())
