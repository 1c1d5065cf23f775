"""Owns: processes in namespaces of their own, as a container has them; made by `unshare`, gone with the process.

Where this user may not make them, the tests say so and are skipped.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["Contained", "contained", "enter_user_namespace", "needs_namespaces"]

_PRIVATE_TMP = "mount -t tmpfs tmpfs /tmp && exec"


def _can_unshare() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-Urpmf", "true"], capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(
    not _can_unshare(), reason="containers are made of namespaces, which needs root and unshare: NOT TESTED here"
)


class Contained:
    """A Python program in a container; it speaks in lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hear(self) -> str:
        """Its next line; what it said to standard error is in the test's output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def say(self, line: str) -> None:
        """A line for its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


@contextmanager
def contained(program: str, *namespaces: str, own_tmp: bool = False) -> Iterator[Contained]:
    """The program in new namespaces, such as "--pid" and "--user"; `own_tmp`: with a /tmp that nobody else sees."""
    python = [sys.executable, "-c", textwrap.dedent(program)]
    inside = ["sh", "-c", f'{_PRIVATE_TMP} "$@"', "sh", *python] if own_tmp else python
    process = subprocess.Popen(
        ["unshare", "--fork", "--kill-child", *namespaces, *inside],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Contained(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


_CLONE_NEWUSER, _CLONE_NEWNS, _PR_SET_DUMPABLE = 0x10000000, 0x20000, 4


def enter_user_namespace() -> None:
    """In a child with one thread: a namespace in which this user is root, with a /tmp of its own, and all other users
    have no number.
    """
    libc, uid, gid = ctypes.CDLL(None, use_errno=True), os.geteuid(), os.getegid()
    for failed in (libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS)):
        if failed:
            raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (("uid_map", f"0 {uid} 1"), ("setgroups", "deny"), ("gid_map", f"0 {gid} 1")):
        Path("/proc/self", name).write_text(text)
    if libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None):
        raise OSError(ctypes.get_errno(), "mount")
