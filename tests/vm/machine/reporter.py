"""Owns: the results of tests on their way out of the virtual machine, one line of JSON each, as soon as there is one.

A plugin of pytest in the guest (`-p vm.machine.reporter`), and the reading side for the host. Must not know: the tests.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

FILE = "results.jsonl"


def _write(**facts: Any) -> None:
    with open(Path("/results") / FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(nodeid=nodeid, outcome="running", text="")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.passed:
        return
    text = report.longreprtext
    if isinstance(report.longrepr, tuple):  # a skip: path, line, reason
        text = str(report.longrepr[2])
    sections = "".join(f"\n---- {title} ----\n{content}" for title, content in report.sections if report.failed)
    _write(nodeid=report.nodeid, outcome=report.outcome, text=text + sections, seconds=round(report.duration, 3))


def read(results: Path) -> dict[str, tuple[str, str]]:
    """(outcome, text) by node id. What never ended is "running"; a failure stays one, whatever comes after."""
    found: dict[str, tuple[str, str]] = {}
    file = results / FILE
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        facts = json.loads(line)
        if found.get(facts["nodeid"], ("", ""))[0] != "failed":
            found[facts["nodeid"]] = (facts["outcome"], facts["text"])
    return found


def inside() -> bool:
    """Whether this process runs in the virtual machine."""
    return os.environ.get("INSIDE_THE_MACHINE") == "1"
