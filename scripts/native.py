"""Builds and runs native programs: `native.py test`, `native.py bench`, and `native.py arm` for 64-bit ARM under qemu.

Owns: build directories of native code, and one summary line per run of the native tests. A test that cannot run here
says so in a line that begins with "could not run:"; those lines are collected, and CI=true does not accept them.
Must not know: Python's side of the project.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import progress
import toolchain
from project_lock import project_lock

ROOT = Path(__file__).resolve().parent.parent
# Line numbers are all that a report needs; full debug information would double the time to compile.
TESTS = (
    "-Dpython_module=false",
    "-Dnative_tests=true",
    "-Dinvariants=3",
    "-Ddebug=false",
    "-Dcpp_args=-g1",
    "-Db_pch=true",
)
# Kernels of edge boards have pages of 4, 16 or 64 KiB, and some give a process 39 bits of addresses.
ARM = {
    "4 KiB pages": {"QEMU_PAGESIZE": "4096"},
    "16 KiB pages": {"QEMU_PAGESIZE": "16384"},
    "64 KiB pages": {"QEMU_PAGESIZE": "65536"},
    "39-bit addresses": {"QEMU_RESERVED_VA": "512G"},
}
BENCH = ("-Dpython_module=false", "-Dnative_bench=true", "-Dbuildtype=release", "-Db_pch=true")


@dataclass
class Outcome:
    programs: int = 0
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    could_not_run: list[str] = field(default_factory=list)


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": path, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def run_or_exit(*command: str | Path) -> None:
    result = run(*command)
    if result.returncode != 0:
        print(f"failed\n\n$ {' '.join(map(str, command))}\n{result.stdout}", flush=True)
        sys.exit(1)


def build(directory: str, *options: str, targets: Sequence[str] = ()) -> Path:
    """Configures when the options or the place changed, then compiles what changed: everything, or these targets."""
    path = ROOT / directory
    stamp = path / "configured.json"
    configured = json.dumps([str(ROOT), *options])
    with project_lock():
        if not stamp.is_file() or stamp.read_text() != configured:
            shutil.rmtree(path, ignore_errors=True)
            _build_step(f"configuring {directory}", "meson", "setup", path, *options)
            stamp.write_text(configured)
        _build_step(f"building {directory}", "ninja", "-C", path, *targets)
    return path


def _build_step(text: str, tool: str, *words: str | Path) -> None:
    code, said = progress.run(text, Path(sys.executable).parent / tool, *words, env=toolchain.compiler_cache())
    if code != 0:
        print(said, file=sys.stderr)
        sys.exit(1)


def run_tests(path: Path, *options: str, env: Mapping[str, str] | None = None) -> Outcome:
    log = path / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    result = run("meson", "test", "-C", path, "--no-rebuild", *options, env=env)
    outcome = Outcome()
    for line in log.read_text().splitlines() if log.is_file() else []:
        record(json.loads(line), outcome)
    if outcome.programs == 0 or (result.returncode != 0 and not outcome.failed):
        outcome.failed.append(f"meson test ended with {result.returncode}")
        print(result.stdout)
    return outcome


def record(test: Mapping[str, str], outcome: Outcome) -> None:
    output = f"{test.get('stdout', '')}\n{test.get('stderr', '')}"
    name = test["name"].removeprefix("tensormem:")
    outcome.programs += 1
    outcome.passed += sum(int(count) for count in re.findall(r"^(\d+) passed, \d+ failed$", output, re.MULTILINE))
    for reason in re.findall(r"^could not run: (.+)$", output, re.MULTILINE):
        outcome.could_not_run.append(f"native {name}: {reason}")
    if test["result"] == "SKIP":
        outcome.could_not_run.append(f"native {name}: skipped as a whole")
    elif test["result"] != "OK":
        outcome.failed.append(name)
        print(f"\n--- {name}: {test['result']}\n{output.strip()}\n", flush=True)


def summarise(title: str, outcome: Outcome, seconds: float) -> bool:
    verdict = f"FAILED: {', '.join(outcome.failed)}" if outcome.failed else "all passed"
    print(f"{title}: {outcome.programs} programs, {outcome.passed} cases, {verdict}, {seconds:.1f} s", flush=True)
    return report_could_not_run(outcome.could_not_run) and not outcome.failed


def report_could_not_run(reasons: Sequence[str]) -> bool:
    """Hands the reasons to the file that `make test` collects, or prints them. False when CI must not accept them."""
    collector = os.environ.get("COULD_NOT_RUN")
    if collector:
        with Path(collector).open("a") as file:
            file.writelines(f"{reason}\n" for reason in reasons)
        return True
    for reason in reasons:
        print(f"could not run: {reason}", flush=True)
    return not reasons or os.environ.get("CI") != "true"


def test() -> bool:
    start = time.monotonic()
    path = build("build-native", *TESTS, "-Doptimization=1")
    return summarise("native tests", run_tests(path), time.monotonic() - start)


def arm() -> bool:
    path = build("build-aarch64", *TESTS, "-Doptimization=1", "--cross-file", "scripts/cross/aarch64.ini")
    passed = True
    for name, variables in ARM.items():
        start = time.monotonic()
        outcome = run_tests(path, "--timeout-multiplier", "10", env=variables)
        passed &= summarise(f"aarch64, {name}", outcome, time.monotonic() - start)
    return passed


def bench() -> bool:
    build("build-bench", *BENCH)
    return True


if __name__ == "__main__":
    verbs = {"test": test, "bench": bench, "arm": arm}
    if len(sys.argv) != 2 or sys.argv[1] not in verbs:
        sys.exit(f"usage: native.py {'|'.join(verbs)}")
    sys.exit(0 if verbs[sys.argv[1]]() else 1)
