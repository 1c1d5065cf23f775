"""Lets one command at a time set up or build in this folder; another one waits and says for whom.

Owns: `.cache/lock`, which the kernel frees with the process that holds it, however that ends.
Must not know: what is done under it. Standard library only, because it runs before anything is installed.
"""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def project_lock(folder: Path = ROOT) -> Iterator[None]:
    """Holds the lock of the project; ends the program with one sentence where nothing can be written."""
    path = folder / ".cache" / "lock"
    try:
        path.parent.mkdir(exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        sys.exit(
            f"Nothing can be written in {folder} ({error.strerror}), where tensormem is built. "
            "Clone it into a folder of your own."
        )
    with file:
        _acquire(file.fileno(), path)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _acquire(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"waiting for process {path.read_text() or '?'}, which is building here", flush=True)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except KeyboardInterrupt:
            sys.exit(130)
