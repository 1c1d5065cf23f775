"""Owns: what a device says about itself, which tests it passes, and what its calls take: a report to send back.

Must not know: how it is shown.
"""

from tensormem.reports.selftest.report import Failure, SelftestReport, examine_device

__all__ = ["Failure", "SelftestReport", "examine_device"]
