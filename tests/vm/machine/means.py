"""Owns: how a part of the virtual machine says that this computer cannot provide it, and running a command for it.

Must not know: the parts.
"""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).resolve().parents[3] / ".cache" / "vm"
"""Where everything is kept that takes long to fetch or to build."""


@contextmanager
def alone() -> Iterator[None]:
    """One session at a time: another one may be filling the same cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class MissingMeans(Exception):
    """The virtual machine cannot be had here; the text says why, and what would help."""


def run(*command: str | Path, time_limit: float = 300.0, cwd: Path | None = None, path: str = "") -> str:
    """What the command printed. A command that is missing, fails or hangs is `MissingMeans` with its last words."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": f"{path}{os.pathsep}{os.environ['PATH']}".lstrip(os.pathsep)}
    try:
        result = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=time_limit,
        )
    except FileNotFoundError:
        raise MissingMeans(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise MissingMeans(f"{command[0]} took longer than {time_limit:.0f} s") from None
    if result.returncode:
        last = (result.stderr.strip() or result.stdout.strip()).splitlines()[-3:]
        raise MissingMeans(f"{Path(command[0]).name} failed: {' / '.join(last)}")
    return result.stdout
