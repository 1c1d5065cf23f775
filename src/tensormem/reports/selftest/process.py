"""Owns: running a group in a process of its own with a time limit, so that a hang or a crash of one group is a result.

The process is the leader of a session: what it started ends with it. Must not know: what a group does.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from time import monotonic

from tensormem.reports.selftest.outcome import CheckResult, GroupResult, Measurement, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Any

    from tensormem.reports.selftest.group import Group

__all__ = ["Refused", "collect_facts", "run_group"]

_MODULE = "tensormem.reports.selftest.child"
_FACTS_SECONDS = 60
_STACK_SECONDS = 5  # for a hung process to say where it is
_KEPT_LINES = 12


class Refused(Exception):
    """The device cannot be opened, and why."""


def collect_facts(where: str, seconds: float = _FACTS_SECONDS) -> dict[str, Any]:
    """The facts of a device and its driver, asked in a process of their own; `Refused` when it cannot be opened."""
    with _Child(where, "facts", seconds) as child:
        for line in child.lines():
            if "facts" in line:
                facts: dict[str, Any] = line["facts"]
                return facts
            if "refused" in line:
                raise Refused(line["refused"])
        raise Refused(f"the driver {child.ending()[1]}")


def run_group(where: str, group: Group, seconds: float | None = None) -> GroupResult:
    """Runs a group on a device; never raises for what the group does."""
    limit = group.seconds if seconds is None else seconds
    checks: list[CheckResult] = []
    latest: dict[str, Any] = {}
    running = ""
    start = monotonic()
    with _Child(where, group.name, limit) as child:
        for line in child.lines():
            latest |= line
            running = line.get("begin", running)
            if "end" in line:
                checks.append(CheckResult(line["end"], Verdict(line["verdict"]), line["why"], line["seconds"]))
                running = ""
        ending, why = child.ending(finished=bool(latest.keys() & {"done", "lacks", "refused"}))
        output = child.output() if ending.is_trouble else ""
    if running:
        checks.append(CheckResult(running, ending, why, monotonic() - start))
    if "lacks" in latest and ending is Verdict.PASSED:
        ending, why = Verdict.NOT_OFFERED, latest["lacks"]
    elif "refused" in latest:
        ending, why = Verdict.FAILED, latest["refused"]
    measurements = tuple(Measurement(*each) for each in latest.get("measurements", ()))
    return GroupResult(
        group.name,
        group.title,
        tuple(checks),
        ending,
        why,
        monotonic() - start,
        latest.get("calls", {}),
        measurements,
        output,
    )


class _Child:
    def __init__(self, where: str, name: str, seconds: float) -> None:
        self._seconds, self._deadline = seconds, monotonic() + seconds
        self._hung = False
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self._pipe, write = os.pipe()
        command = [sys.executable, "-X", "faulthandler", "-m", _MODULE, where, name, str(write)]
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=(write,),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(write)

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *error: object) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._pipe)
        self._log.close()

    def lines(self) -> Iterator[dict[str, Any]]:
        """What the process tells, until it ends or its time is over."""
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, self._deadline - monotonic())):
                    self._hung = True
                    return
                chunk = os.read(self._pipe, 65536)
                if not chunk:
                    return
                *whole, rest = (rest + chunk).split(b"\n")
                yield from map(json.loads, whole)

    def ending(self, *, finished: bool = False) -> tuple[Verdict, str]:
        """How the process ended, which may have `finished` its checks and still be in trouble afterwards."""
        code = None if self._hung else self._wait(max(_STACK_SECONDS, self._deadline - monotonic()))
        place = " after its last check" if finished else ""
        if code is None:
            self._signal(signal.SIGABRT)  # faulthandler writes where every thread is
            self._wait(_STACK_SECONDS)
            return Verdict.HUNG, f"did not end in {self._seconds:g} seconds and was stopped{place}"
        if code < 0:
            return Verdict.CRASHED, f"was ended by {signal.Signals(-code).name}{place}"
        if code > 0 or not finished:
            return Verdict.CRASHED, f"ended with {code} before it was done"
        return Verdict.PASSED, ""

    def output(self) -> str:
        """The last lines that the process printed."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-_KEPT_LINES:])

    def _wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
