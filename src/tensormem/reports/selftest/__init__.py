"""Owns: what a device says about itself, which promises it keeps, and what its calls take: a report to send back.

Each group of checks runs in a process of its own with a time limit: a driver that hangs or crashes is a result.
Must not know: how it is shown on a terminal.
"""

from tensormem.public_functions import explain_misspellings
from tensormem.reports.selftest.outcome import CheckResult, GroupResult, Measurement, Verdict
from tensormem.reports.selftest.page import page
from tensormem.reports.selftest.report import SelftestReport

__all__ = ["CheckResult", "GroupResult", "Measurement", "SelftestReport", "Verdict", "page"]

explain_misspellings(globals())
