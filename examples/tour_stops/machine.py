"""Owns: the first stop, three lines on what machine this is."""

from tensormem.reports.machine import Status, examine
from tour_stops.guide import Guide

TITLE = "What machine this is"


def show(guide: Guide) -> None:
    report = examine()
    text = {finding.name: finding.outcome.value_text for finding in report.findings}
    reason = {finding.name: finding.outcome.reason for finding in report.findings}
    working = [name for name in ("host", "cuda", "rocm") if report[name].outcome.status is Status.WORKS]
    guide.say(f"{text['cores']} cores, {text['main_memory']} of memory, {text['available_memory']} available")
    guide.say(f"pages of {text['huge_pages']} ({reason['huge_pages']}), mappings allowed: {text['max_map_count']}")
    guide.say(f"drivers that work: {', '.join(working)}; Python {text['python']}, {reason['python']}")
    guide.expect("the host driver works", report.usable)
