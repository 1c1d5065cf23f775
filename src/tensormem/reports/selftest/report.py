"""Owns: the report of one device, and how it is put together: facts, the device suite in a process of its own, timings.

Must not know: how it is shown.
"""

import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from tensormem.drivers import COMPUTING, resolve
from tensormem.reports.selftest.timings import measure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["Failure", "SelftestReport", "examine_device"]

_SUITE = "tensormem.testing.device_suite"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that the device did not pass, and the first line of why.

    >>> Failure("test_bytes_come_back", "AssertionError").test
    'test_bytes_come_back'
    """

    test: str
    why: str


@dataclass(frozen=True, slots=True)
class SelftestReport:
    """What a device is, which tests it passed, and what its calls take.

    >>> SelftestReport("host", "Linux", False, 3, 0, (), {}).passes
    True
    """

    device: str
    name: str
    simulated: bool
    passed: int
    skipped: int
    failures: tuple[Failure, ...]
    microseconds: dict[str, float]

    @property
    def passes(self) -> bool:
        """Whether tests ran, and none failed."""
        return self.passed > 0 and not self.failures

    def as_json(self) -> dict[str, object]:
        """Raw values, with a version, and what is needed to make sense of them elsewhere."""
        return {
            "version": _VERSION,
            "tensormem": version("tensormem"),
            "python": platform.python_version(),
            "system": platform.platform(),
            **asdict(self),
        }


def examine_device(device: "WhereLike") -> SelftestReport:
    """Run the device suite and the timings on `device`; `DriverUnavailable` when it is not there."""
    where = resolve(device, COMPUTING, "a device is tested")
    driver = where.driver
    info = driver.device_info()
    said = device if isinstance(device, str) else str(where)
    passed, skipped, failures = _run_suite(said)
    return SelftestReport(said, info["name"], info["simulated"], passed, skipped, failures, measure(driver))


def _run_suite(device: str) -> tuple[int, int, tuple[Failure, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tensormem.testing.device_plugin", "--device", device]
        options = ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", folder, f"--junitxml={results}"]
        done = subprocess.run(
            [*command, *options, "--pyargs", _SUITE], cwd=folder, capture_output=True, text=True, check=False
        )
        if not results.exists():
            return 0, 0, (Failure(_SUITE, _last_line(done.stderr or done.stdout)),)
        return _read(ElementTree.parse(results).getroot())


def _read(root: ElementTree.Element) -> tuple[int, int, tuple[Failure, ...]]:
    cases = list(root.iter("testcase"))
    skipped = [case for case in cases if case.find("skipped") is not None]
    failures = []
    for case in cases:
        trouble = case.find("failure") if case.find("failure") is not None else case.find("error")
        if trouble is not None:
            name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
            failures.append(Failure(name, (trouble.get("message") or "").partition("\n")[0]))
    return len(cases) - len(skipped) - len(failures), len(skipped), tuple(failures)


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "pytest said nothing")
