"""The tests of this folder run inside a virtual machine whose kernel has DMA-BUFs; here is what brings them there.

On the host each of them is collected and stands for its twin in the machine, which is booted once for all of them. In
the machine (`vm.machine.reporter.inside()`) they are ordinary tests. Without the means they are skipped, and say why.
"""

from pathlib import Path
from typing import Any

import pytest

from vm.machine import reporter
from vm.machine.guest_run import GuestRun
from vm.machine.means import MissingMeans

HERE = Path(__file__).resolve().parent

# The first of them may have to fetch a kernel; the boot itself has a time limit of its own.
SECONDS = 1800


class FailedInside(Exception):
    """What the machine reported."""


class GuestTest(pytest.Item):
    """Stands on the host for a test that runs in the machine."""

    def __init__(self, *, run: GuestRun, place: tuple[Any, int | None, str], **options: Any) -> None:
        super().__init__(**options)
        self._run, self._place = run, place
        self.add_marker(pytest.mark.timeout(SECONDS))

    def runtest(self) -> None:
        try:
            outcome, text = self._run.result(self.nodeid)
        except MissingMeans as missing:
            pytest.skip(f"no virtual machine: {missing}")
        if outcome == "skipped":
            pytest.skip(f"in the virtual machine: {text.removeprefix('Skipped: ')}")
        if outcome != "passed":
            raise FailedInside(text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, FailedInside):
            return f"In the virtual machine:\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self._place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if reporter.inside():
        return
    run = GuestRun([item.nodeid for item in items if item.path.is_relative_to(HERE)])
    for number, item in enumerate(items):
        if item.path.is_relative_to(HERE) and item.parent is not None:
            items[number] = GuestTest.from_parent(item.parent, name=item.name, run=run, place=item.reportinfo())
