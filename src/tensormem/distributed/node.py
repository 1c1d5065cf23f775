"""Owns: what a node is: where processes reach each other by descriptor. Must not know: engines."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from tensormem import errors
from tensormem.sockets.directory import own_directory

__all__ = ["this_host"]


@cache
def this_host() -> str:
    """The same text in every process that can reach our hand-over server, and in no other.

    It is this boot of the kernel, and the directory in which the addresses of the servers are; where there is none, the
    network namespace, in which addresses without a file are.

    >>> this_host() == this_host()
    True
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        around = own_directory()
    except (errors.SharingError, errors.DriverError):
        around = "/proc/self/ns/net"
    facts = os.stat(around)
    return f"{boot}/{facts.st_dev}-{facts.st_ino}/{os.geteuid()}"
