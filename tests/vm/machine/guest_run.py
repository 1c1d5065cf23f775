"""Owns: one run of the guest's tests: boots the machine once for all that were asked for, and knows what came out.

Must not know: what the tests test.
"""

import shlex
import shutil
import tempfile
from pathlib import Path

from vm.machine import reporter, site
from vm.machine.computer import RESULTS, Computer, Outcome
from vm.machine.kernel import find_kernel
from vm.machine.means import CACHE, MissingMeans, alone
from vm.machine.mesa import find_mesa

TIME_LIMIT = 600.0
"""Seconds for a whole boot with all its tests. Emulation on an idle machine needs less than a minute."""


class GuestRun:
    """The results of `nodeids`, fetched by one boot when the first is asked for."""

    def __init__(self, nodeids: list[str]) -> None:
        self._nodeids = nodeids
        self._results: dict[str, tuple[str, str]] = {}
        self._missing: str | None = None
        self._outcome: Outcome | None = None
        self._told = False

    def result(self, nodeid: str) -> tuple[str, str]:
        """(outcome, text) of one test. `MissingMeans` if there can be no machine here."""
        if self._outcome is None and self._missing is None:
            try:
                self._boot()
            except MissingMeans as missing:
                self._missing = str(missing)
        if self._missing is not None:
            raise MissingMeans(self._missing)
        outcome, text = self._results.get(nodeid, ("lost", ""))
        return (outcome, text) if outcome in ("passed", "failed", "skipped") else ("failed", self._epitaph(outcome))

    def _boot(self) -> None:
        with alone():
            computer = Computer(find_kernel(), site.shares(), site.links())
            variables = find_mesa()
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))  # inside the project, which the guest sees
        try:
            installed = site.install(folder / "site")
            (folder / "arguments").write_text("\n".join(self._nodeids), encoding="utf-8")
            self._outcome = computer.boot(self._job(installed, variables), folder, TIME_LIMIT)
            self._results = reporter.read(folder)
            (CACHE / "console.txt").write_text(self._outcome.console, encoding="utf-8")
        finally:
            shutil.rmtree(folder)

    def _job(self, installed: Path, variables: dict[str, str]) -> str:
        plugins = "-p vm.machine.reporter -p pytest_timeout -p no:cacheprovider"
        pytest = f"-m pytest -q --durations=12 {plugins} --basetemp=/tmp/pytest --tb=short @{RESULTS}/arguments"
        python = site.python_command(installed, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables})
        return f"cd {shlex.quote(str(site.ROOT))} && {python} {pytest}\n"

    def _epitaph(self, outcome: str) -> str:
        assert self._outcome is not None
        what = "It was running when the machine stopped." if outcome == "running" else "It never ran."
        ended = f"The job's exit code: {self._outcome.exit_code}; accelerator: {self._outcome.accelerator}."
        if self._told:
            return f"{what} {ended}"
        self._told = True
        last = "\n".join(self._outcome.console.splitlines()[-60:])
        return f"{what} {ended} The console said:\n{last}"
