"""Runs a command and shows how far it is: one line that is written over on a terminal, a line now and then elsewhere.

Owns: what is shown while a step of the set-up runs, and the end of it when it is stopped from outside. The counts are
ninja's, which writes `[3/120] what it does`. What the command says is kept, and shown only when it fails.
Must not know: what is run. Standard library only, because it runs before anything is installed.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
COUNT = re.compile(r"\[(\d+)/(\d+)\] (.*)")
# Where lines stay, one is enough for this many seconds.
SPARSE_SECONDS = 15.0


class Progress:
    """The line of one step."""

    def __init__(self, text: str, stream: TextIO | None = None) -> None:
        self._text = text
        self._stream = stream or sys.stdout
        self._overwrites = self._stream.isatty()
        self._start = self._shown = time.monotonic()
        self._write(f"{text} ...")

    def _write(self, text: str, end: str = "") -> None:
        if self._overwrites:
            columns = os.get_terminal_size(self._stream.fileno()).columns or 80
            print(f"\r\x1b[K{text[: columns - 1]}", end=end, file=self._stream, flush=True)
        else:
            print(text, file=self._stream, flush=True)

    def saw(self, line: str) -> None:
        """Takes a line of the command, and shows the count in it, if there is one and it is time."""
        count = COUNT.search(line)
        now = time.monotonic()
        if count is None or (not self._overwrites and now - self._shown < SPARSE_SECONDS):
            return
        self._shown = now
        done, total, what = count.groups()
        self._write(f"{self._text}: {done} of {total}, {now - self._start:.0f} s, {what.split('/')[-1].strip()}")

    def end(self, outcome: str | None = None) -> None:
        self._write(f"{self._text}: {outcome or f'{time.monotonic() - self._start:.1f} s'}", end="\n")


def run(text: str, *command: str | Path, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Runs `command` in the project's folder; its exit code, and what it said. Ctrl-C ends both."""
    progress = Progress(text)
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}"
    said = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": path, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line)
                progress.saw(line)
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            progress.end("stopped; the same command goes on from here")
            sys.exit(130)
    progress.end("failed" if process.returncode else None)
    return process.returncode, "".join(said)
