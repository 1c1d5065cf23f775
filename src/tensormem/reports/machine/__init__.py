"""Owns: what this machine can do for tensor memory: every driver, memory kind, limit, library and setting.

Findings are plain data, got without any third-party package and without importing the optional ones. A probe never
raises for what it finds: what cannot be told is a finding too. Must not know: how findings are shown.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.reports.machine.examination import MachineReport, examine
from tensormem.reports.machine.finding import Area, Finding, Outcome, Status
from tensormem.reports.machine.system import System

__all__ = ["Area", "Finding", "MachineReport", "Outcome", "Status", "System", "examine"]

explain_misspellings(globals())
