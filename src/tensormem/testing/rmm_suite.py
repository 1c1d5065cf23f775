"""Owns: running RMM's own Python tests against `tensormem.rmm`: `python -m tensormem.testing.rmm_suite CHECKOUT`.

The checkout of rapidsai/rmm is the user's; nothing of it is kept here but the counts. The tests run in a process of
their own, on a simulated GPU unless the machine's own is asked for, and find `tensormem.rmm` where they say `rmm`.
Must not know: what the tests are about.
"""

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest

from tensormem import rmm
from tensormem.testing.gpus import simulated_environment

__all__ = ["answer_to_rmm", "main", "run"]

_PLUGIN = "tensormem.testing.rmm_suite"
# What the CUDA runtime library answers where it finds no driver of NVIDIA's own.
_NO_RUNTIME = "cudaErrorCallRequiresNewerDriver"
_TESTS = Path("python", "rmm", "rmm", "tests")


def answer_to_rmm() -> None:
    """Let `import rmm` find `tensormem.rmm` in this process."""
    sys.modules["rmm"] = rmm
    for found in pkgutil.walk_packages(rmm.__path__, f"{rmm.__name__}."):
        sys.modules[found.name.removeprefix("tensormem.")] = importlib.import_module(found.name)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """As a plugin of pytest: before any file of the tests is imported."""
    answer_to_rmm()
    if "TENSORMEM_SIMGPU" in os.environ:
        _wake_numba()


def _wake_numba() -> None:
    """Numba's first call asks the driver for functions of interprocess handles, which the simulated one does not have,
    and raises; from then on it works."""
    with contextlib.suppress(ImportError, ctypes.ArgumentError):
        importlib.import_module("numba.cuda").current_context()


def run(checkout: Path, *, simulated: bool = True, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run the tests of a checkout; gives the counts, by file, and why each test did not pass."""
    folder = checkout / _TESTS
    if not folder.is_dir():
        raise FileNotFoundError(f"{checkout} is not a checkout of RMM: it has no folder {_TESTS}")
    with TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        environment = {**os.environ, **(simulated_environment(1, "1GiB") if simulated else {})}
        command = [sys.executable, "-m", "pytest", "-q", "-p", _PLUGIN, "-p", "no:cacheprovider", "-c", os.devnull]
        command += [f"--rootdir={scratch}", f"--junitxml={report}", "--continue-on-collection-errors"]
        subprocess.run([*command, *arguments, str(folder)], env=environment, cwd=scratch, check=False)
        return _counts(ElementTree.parse(report).getroot(), checkout)


def _counts(report: ElementTree.Element, checkout: Path) -> dict[str, Any]:
    files: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    for case in report.iter("testcase"):
        file = (case.get("classname") or case.get("name") or "").split(".")[0]
        outcome = next((kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None), "passed")
        found = case.find(outcome)
        text = "" if found is None else found.get("message") or ""
        if outcome == "failure" and _NO_RUNTIME in text:
            outcome = "needs the CUDA runtime"
        files.setdefault(file, Counter())[outcome] += 1
        if outcome != "passed":
            reasons[f"{outcome}: {file}: {_plain(text)}"] += 1
    total = sum(files.values(), Counter())
    version = checkout / "VERSION"
    return {
        "version": 1,
        "rmm": version.read_text().strip() if version.is_file() else "",
        "total": dict(sorted(total.items())),
        "files": {file: dict(sorted(count.items())) for file, count in sorted(files.items())},
        "reasons": dict(sorted(reasons.items())),
    }


def _plain(text: str) -> str:
    """A message without what differs from run to run."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    return re.sub(r"0x[0-9a-f]+", "0x..", re.sub(r"(/[\w.+-]+)+/", "", line))[:160]


def main(arguments: list[str] | None = None) -> int:
    """The command: prints the counts, keeps them with `--counts FILE`; 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tensormem.testing.rmm_suite", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of rapidsai/rmm")
    parser.add_argument("--real-gpu", action="store_true", help="use the machine's GPU, not a simulated one")
    parser.add_argument("--counts", type=Path, help="write the counts to this file")
    known, further = parser.parse_known_args(arguments)
    counts = run(known.checkout, simulated=not known.real_gpu, arguments=tuple(further))
    text = json.dumps(counts, indent=2) + "\n"
    if known.counts is not None:
        known.counts.write_text(text)
    print(text)
    return 1 if counts["total"].keys() & {"failure", "error"} else 0


if __name__ == "__main__":
    sys.exit(main())
