"""Owns: a program that is recorded: the environment it is started with, and how it ended.

Must not know: what is said of it.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tensormem.startup
from tensormem._core import native_library
from tensormem.cli.files import Refusal
from tensormem.top.directories import is_usable

__all__ = ["RecordingOptions", "environment_of", "preload_library", "run_program"]

_FAILURES = "_TENSORMEM_TRACE_FAILURES"  # in the environment: the pipe on which a recording tells that it fails
_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class RecordingOptions:
    """What is recorded of a program. `malloc_bytes` is None where the C library is left alone.

    >>> RecordingOptions(output="run.tmt", follow_children=True).pattern
    'run-{pid}.tmt'
    """

    output: str
    stacks: bool = False
    numpy: bool = True
    torch: bool = False
    malloc_bytes: int | None = 64 * 1024
    follow_children: bool = False

    @property
    def pattern(self) -> str:
        """The name of the trace, in which {pid} is the process if each has a file of its own."""
        if not self.follow_children or "{pid}" in self.output:
            return self.output
        path = Path(self.output)
        return str(path.with_name(f"{path.stem}-{{pid}}{path.suffix}"))


def preload_library() -> Path:
    """The library that looks at the C library's blocks; `Refusal` where it was not built."""
    found = Path(native_library()).with_name("libtensormem_preload.so")
    if not found.exists():
        raise Refusal(f"{found} is not there, so the C library's blocks cannot be seen; give --malloc off")
    return found


def environment_of(options: RecordingOptions) -> dict[str, str]:
    """The environment in which a program records itself."""
    environment = {
        **os.environ,
        "TENSORMEM_TRACE": str(Path(options.pattern).absolute()),
        "TENSORMEM_TRACE_STACKS": str(int(options.stacks)),
        "TENSORMEM_TRACE_NUMPY": str(int(options.numpy)),
        "TENSORMEM_TRACE_TORCH": str(int(options.torch)),
        "TENSORMEM_TRACE_MALLOC": "off" if options.malloc_bytes is None else str(options.malloc_bytes),
    }
    environment.pop("_TENSORMEM_TRACE_OWNER", None)
    startup = Path(tensormem.startup.__file__).parent / "path"
    _put_in_front(environment, "PYTHONPATH", str(startup))
    if options.malloc_bytes is not None:
        _put_in_front(environment, "LD_PRELOAD", str(preload_library()))
    if is_usable():
        environment.setdefault("TENSORMEM_TOP", "1")
    return environment


def run_program(command: tuple[str, ...], environment: dict[str, str], failed: Callable[[str], None]) -> int:
    """Run it to its end. Its exit code, as a shell says it: 128 and the signal for one that was killed.

    `failed` is called, from another thread, as soon as its recording cannot be written, with the reason.
    """
    listening, telling = os.pipe()
    pipe = f"{telling} {os.fstat(telling).st_ino}"
    try:
        process = subprocess.Popen(command, env={**environment, _FAILURES: pipe}, pass_fds=[telling])
    except OSError as error:
        os.close(listening)
        raise Refusal(f"{command[0]}: {error.strerror}") from None
    finally:
        os.close(telling)
    # A child that outlives the program may keep the other end: the thread is not waited for, only what it has heard.
    listener = threading.Thread(target=_listen, args=(listening, failed), daemon=True)
    listener.start()
    code = _wait(process)
    listener.join(_LAST_WORDS_SECONDS)
    return 128 - code if code < 0 else code


def _listen(pipe: int, failed: Callable[[str], None]) -> None:
    with open(pipe, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            failed(line.strip())


def _wait(process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the program got it too, and decides


def _put_in_front(environment: dict[str, str], name: str, value: str) -> None:
    before = environment.get(name)
    environment[name] = f"{value}{os.pathsep}{before}" if before else value
