"""Owns: workers that run the cases of suites, and what they found: crashes and hangs are seen from here.

A batch whose process dies goes on behind the case that it died in. A case that says nothing for `HANG_SECONDS` is asked
where it is, and killed. Must not know: any attack, or how findings are told.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attacks.cell import Cell
from attacks.outcome import BAD, CANNOT_BEGIN, Finding, Outcome

__all__ = ["Crew", "Tally"]

HANG_SECONDS = 60.0
# One case has no reason to hold more.
MOST_RESIDENT_BYTES = 4 << 30
_TESTS = Path(__file__).resolve().parents[1]


@dataclass
class Tally:
    """What came of one suite so far."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    unclear: Counter[str] = field(default_factory=Counter)
    could_not_run: str = ""
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        """How many ended, in whatever way."""
        return sum(self.counts.values())


class _Worker:
    """One worker process, and the batch that it runs."""

    def __init__(self, suite: str, folder: Path) -> None:
        self.suite, self.folder = suite, folder
        folder.mkdir()
        self.results = folder / "results"
        self.results.touch()
        self._read = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "attacks.worker", suite, str(folder)],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")]),
                "TMPDIR": str(folder),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.batch = (0, 0)
        self.killed_for: Outcome | None = None
        assert self.process.stdout is not None
        self.output = self.process.stdout
        word, _, why_not = self.output.readline().strip().partition(" ")
        if word != "ready":
            raise RuntimeError(f"the worker of {suite} does not start")
        self.why_not = why_not
        self.cell = Cell(folder / "cell")

    def start(self, first: int, count: int) -> None:
        self.batch = (first, count)
        self.killed_for = None
        assert self.process.stdin is not None
        self.process.stdin.write(f"{first} {count}\n")
        self.process.stdin.flush()

    def status(self) -> int:
        line = self.output.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.suite} is gone (code {self.process.wait()})")
        return int(line)

    def facts(self) -> list[dict[str, Any]]:
        """What its child wrote since the last call."""
        with self.results.open() as file:
            file.seek(self._read)
            lines = file.read()
        self._read += len(lines.encode())
        return [json.loads(line) for line in lines.splitlines()]

    def trouble(self) -> str:
        with contextlib.suppress(OSError):
            return (self.folder / "trouble").read_text(errors="replace")
        return ""

    def tidy(self) -> None:
        shutil.rmtree(self.folder / f"batch-{self.batch[0]}", ignore_errors=True)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.output.close()


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


class Crew:
    """Runs cases on several processes at once; `tallies` has what came of them."""

    def __init__(
        self, size: int = 2, on_progress: Callable[[Crew], None] | None = None, hang_seconds: float = HANG_SECONDS
    ) -> None:
        self._size, self._hang_seconds = size, hang_seconds
        self._on_progress = on_progress
        self.tallies: dict[str, Tally] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="tensormem-attacks-"))
        os.chmod(self._folder, 0o711)
        self._serial = 0
        self._spare: dict[str, list[_Worker]] = {}
        self._workers: list[_Worker] = []

    def run(self, batches: list[tuple[str, int, int]], until: float = float("inf")) -> None:
        """Runs (suite, first seed, count) until all are done or the monotonic clock says `until`."""
        waiting = deque(batches)
        running = selectors.DefaultSelector()
        while waiting or running.get_map():
            while waiting and len(running.get_map()) < self._size and time.monotonic() < until:
                suite, first, count = waiting.popleft()
                worker = self._worker(suite)
                if worker.why_not:
                    self.tallies[suite].could_not_run = worker.why_not
                    self._spare[suite].append(worker)
                    continue
                worker.start(first, count)
                running.register(worker.output, selectors.EVENT_READ, (worker, time.monotonic()))
            if not running.get_map():
                return
            for key, _ in running.select(timeout=0.5):
                worker, began = key.data
                running.unregister(key.fileobj)
                self.tallies[worker.suite].seconds += time.monotonic() - began
                waiting.extendleft(self._end(worker, worker.status()))
            for key in list(running.get_map().values()):
                self._look_at(key.data[0])
            if self._on_progress:
                self._on_progress(self)

    def _worker(self, suite: str) -> _Worker:
        self.tallies.setdefault(suite, Tally())
        spare = self._spare.setdefault(suite, [])
        if spare:
            return spare.pop()
        self._serial += 1
        # Workers of other suites that rest would only take memory.
        for name, others in self._spare.items():
            while name != suite and len(others) > 1:
                others.pop().close()
        made = _Worker(suite, self._folder / f"{suite}-{self._serial}")
        self._workers.append(made)
        return made

    def _look_at(self, worker: _Worker) -> None:
        pid, _, seconds, _ = worker.cell.read()
        if pid in (0, worker.process.pid) or worker.killed_for:
            return
        if seconds > self._hang_seconds or _resident_bytes(pid) > MOST_RESIDENT_BYTES:
            worker.killed_for = Outcome.HANG if seconds > self._hang_seconds else Outcome.LEAK
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR2)
                time.sleep(0.5)  # it writes where its threads are
                os.kill(pid, signal.SIGKILL)

    def _end(self, worker: _Worker, status: int) -> list[tuple[str, int, int]]:
        """Takes in what a batch said; what is left of it when it did not come to its end."""
        tally = self.tallies[worker.suite]
        whole = False
        bad = Counter[str]()
        for fact in worker.facts():
            if "counts" in fact:
                whole = True
                tally.counts.update(fact["counts"])
            else:
                self._take(worker, fact)
                bad[str(fact["outcome"])] += 1
        rest: list[tuple[str, int, int]] = []
        if not whole or status != 0:
            rest = self._crashed(worker, status, bad, whole)
        worker.tidy()
        self._spare[worker.suite].append(worker)
        return rest

    def _take(self, worker: _Worker, fact: dict[str, Any]) -> None:
        outcome, what = Outcome(str(fact["outcome"])), str(fact["what"])
        tally = self.tallies[worker.suite]
        if outcome in BAD:
            tally.findings.append(Finding(worker.suite, int(str(fact["seed"])), int(str(fact["first"])), outcome, what))
        else:
            tally.unclear[what.split("\n")[0][:160]] += 1

    def _crashed(self, worker: _Worker, status: int, bad: Counter[str], whole: bool) -> list[tuple[str, int, int]]:
        first, count = worker.batch
        _, seed, _, note = worker.cell.read()
        seed = min(max(seed, first), first + count - 1)
        tally = self.tallies[worker.suite]
        outcome = worker.killed_for or Outcome.CRASH
        ending = f"signal {status & 127}" if status & 127 else f"exit code {status >> 8}"
        what = f"{ending} in {note[:200]}\n{worker.trouble()[:6000]}"
        tally.findings.append(Finding(worker.suite, seed, first, outcome, what))
        if not whole:
            tally.counts.update(bad)
            tally.counts["fine"] += seed - first - sum(bad.values())  # what exactly they were died with the process
        tally.counts[outcome] += 1
        # A batch that cannot even begin would fail for each of its cases.
        rest = 0 if status >> 8 == CANNOT_BEGIN else first + count - seed - 1
        return [(worker.suite, seed + 1, rest)] if rest > 0 and not whole else []

    def close(self) -> None:
        """Ends the workers, and what they run, and removes what they wrote."""
        for worker in self._workers:
            worker.close()
        shutil.rmtree(self._folder, ignore_errors=True)
