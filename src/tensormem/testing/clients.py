"""Owns: running other people's own GPU tests on the simulated GPU, and comparing with what passed before.

`python -m tensormem.testing.clients --cuda-core CHECKOUT --numba-cuda CHECKOUT --hip CHECKOUT`: the checkouts of
NVIDIA/cuda-python, NVIDIA/numba-cuda and ROCm/hip-python are the user's, and the packages that they test must be
installed; nothing of them is kept here but the counts. Must not know: what the tests are about.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from tensormem.testing.gpus import simulated_environment

__all__ = ["CLIENTS", "Client", "compare", "main", "run"]

FLOOR = Path("tests", "gpu_clients.json")
Counts = dict[str, dict[str, int]]


@dataclass(frozen=True, kw_only=True)
class Client:
    """Whose tests, and where in a checkout they are: tests of pytest, or programs that must end well."""

    name: str
    vendor: str
    folder: Path
    tests: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


_CORE = (
    "test_stream.py",
    "test_context.py",
    "test_device.py",
    "test_event.py",
    "test_utils_dlpack.py",
    "test_memory.py",
    "test_memory_peer_access.py",
    "memory",
    "memory_ipc",
)
_NUMBA = (
    "test_cuda_memory.py",
    "test_cuda_ndarray.py",
    "test_host_alloc.py",
    "test_managed_alloc.py",
    "test_pinned.py",
)
_HIP = ("hip_deviceattributes.py", "hip_stream.py", "hip_python_device_array.py")
CLIENTS = (
    Client(name="cuda-core", vendor="cuda", folder=Path("cuda_core", "tests"), tests=_CORE),
    Client(
        name="numba-cuda",
        vendor="cuda",
        folder=Path("numba_cuda", "numba", "cuda", "tests", "cudadrv"),
        tests=_NUMBA,
    ),
    Client(name="hip", vendor="rocm", folder=Path("examples", "0_Basic_Usage"), programs=_HIP),
)

# The runtime library of CUDA cannot find the simulated driver. The one call of it that these tests make becomes the
# driver's, in every process that they start.
_CUSTOM = """\
import sys


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "cuda.bindings.runtime":
            return None
        sys.meta_path.remove(self)
        from cuda.bindings import driver, runtime

        runtime.cudaDeviceSynchronize = lambda: (runtime.cudaError_t(int(driver.cuCtxSynchronize()[0])),)
        return runtime.__spec__


sys.meta_path.insert(0, _Finder())
"""


def run(client: Client, checkout: Path, *, seconds: float = 300) -> Counts:
    """Run a client's tests; gives the counts by file. A file that takes longer than `seconds` is a failure."""
    folder = checkout / client.folder
    if not folder.is_dir():
        raise FileNotFoundError(f"{checkout} is not a checkout of {client.name}: it has no folder {client.folder}")
    counts: Counts = {}
    with TemporaryDirectory() as scratch:
        Path(scratch, "sitecustomize.py").write_text(_CUSTOM)
        path = os.pathsep.join(filter(None, (scratch, os.environ.get("PYTHONPATH"))))
        simulated = simulated_environment(2, "1GiB", vendor=client.vendor, habits=True)
        environment = {**os.environ, **simulated, "PYTHONPATH": path}
        for name in client.tests:
            report = Path(scratch, f"{name}.xml")
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", name]
            counts[name] = (
                _count(report) if _ends(command, folder, environment, seconds) is not None else {"timeout": 1}
            )
        for name in client.programs:
            ended = _ends([sys.executable, name], folder, environment, seconds)
            counts[name] = {"passed" if ended == 0 else "failure": 1}
    return counts


def _ends(command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float) -> int | None:
    try:
        done = subprocess.run(command, cwd=folder, env=environment, check=False, timeout=seconds, capture_output=True)
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _count(report: Path) -> dict[str, int]:
    if not report.is_file():
        return {"error": 1}
    counts: Counter[str] = Counter()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        counts[next((kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None), "passed")] += 1
    return dict(sorted(counts.items())) or {"error": 1}


def compare(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> tuple[list[str], list[str]]:
    """What got better and what got worse, one line each: more or fewer tests pass."""
    better, worse = list[str](), list[str]()
    for client, files in after.items():
        for file, counts in files.items():
            passed, floor = counts.get("passed", 0), before.get(client, {}).get(file, {}).get("passed", 0)
            if passed != floor:
                (better if passed > floor else worse).append(f"{client} {file}: {floor} passed before, {passed} now")
    return better, worse


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: prints the counts and what changed; 1 if fewer tests pass than the floor says."""
    parser = argparse.ArgumentParser(prog="python -m tensormem.testing.clients", description=__doc__)
    for client in CLIENTS:
        parser.add_argument(f"--{client.name}", type=Path, metavar="CHECKOUT", help=f"run the tests of {client.folder}")
    parser.add_argument("--floor", type=Path, default=FLOOR, help="the counts to compare with (default: %(default)s)")
    parser.add_argument("--update", action="store_true", help="keep the counts of this run as the floor")
    given = vars(parser.parse_args(arguments))
    asked = [(client, given[client.name.replace("-", "_")]) for client in CLIENTS]
    if not any(checkout for _, checkout in asked):
        parser.error("name at least one checkout")
    after = {client.name: run(client, checkout) for client, checkout in asked if checkout is not None}
    floor: Path = given["floor"]
    before: dict[str, Counts] = json.loads(floor.read_text())["clients"] if floor.is_file() else {}
    better, worse = compare(before, after)
    print(json.dumps(after, indent=2))
    for word, lines in (("better", better), ("worse", worse)):
        for line in lines:
            print(f"{word}: {line}")
    if given["update"]:
        floor.write_text(json.dumps({"version": 1, "clients": before | after}, indent=2) + "\n")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
