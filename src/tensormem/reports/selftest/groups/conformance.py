"""Owns: the shipped suite of hundreds of cases, run on the device where pytest is installed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import Broken, NotOffered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("conformance", "The conformance suite", seconds=900, gpu_only=False)
_SUITE = "tensormem.testing.device_suite"
_SHOWN = 5


@GROUP.check
def suite(subject: Subject) -> None:
    """Every case of the device suite passes."""
    if find_spec("pytest") is None:
        raise NotOffered("pytest is not installed, and only this group needs it")
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tensormem.testing.device_plugin"]
        options = ["--device", subject.where, "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", folder]
        done = subprocess.run(
            [*command, *options, f"--junitxml={results}", "--pyargs", _SUITE],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if not results.exists():
            raise Broken(_last_line(done.stderr or done.stdout))
        failures = list(_failures(ElementTree.parse(results).getroot()))
    if failures:
        raise Broken(f"{len(failures)} cases failed: " + "; ".join(failures[:_SHOWN]))


def _failures(root: ElementTree.Element) -> list[str]:
    found = []
    for case in root.iter("testcase"):
        trouble = case.find("failure") if case.find("failure") is not None else case.find("error")
        if trouble is not None:
            first = (trouble.get("message") or "").partition("\n")[0]
            found.append(f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}: {first}")
    return found


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "pytest said nothing")
