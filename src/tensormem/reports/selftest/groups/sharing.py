"""Owns: the checks of memory that two processes share: exported here, imported there, written by both."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import Broken, expect
from tensormem.vmm import VirtualMemoryManager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("sharing", "Two processes", "virtual_memory", "posix_handles", gpu_only=False)
_SECONDS = 40

# What the other process does: imports the descriptor, reads what the first wrote, writes an answer.
_PEER = """
import socket, sys
from tensormem.reports.selftest.subject import Subject
from tensormem.vmm import VirtualMemoryManager
subject, size = Subject(sys.argv[1]), int(sys.argv[3])
with socket.socket(fileno=int(sys.argv[2])) as channel:
    fd = socket.recv_fds(channel, 1, 1)[1][0]
    with VirtualMemoryManager(subject.driver) as vmm:
        page = vmm.import_handle(fd, size)
        mapped = vmm.map(vmm.reserve(size), page, 0, access="read_write")
        seen = subject.read(mapped.address, size)
        subject.driver.fill(mapped.address, 0x22, 1, (size, 1, 1))
        subject.wait()
    channel.sendall(b"y" if seen == b"\\x11" * size else b"n")
"""


@GROUP.check
def two_processes(subject: Subject) -> None:
    """Another process imports a page by its descriptor, reads it and writes it."""
    size = subject.driver.granularity()[1]
    with VirtualMemoryManager(subject.driver) as vmm:
        page = vmm.alloc_physical(size, exportable=True)
        mapped = vmm.map(vmm.reserve(size), page, 0, access="read_write")
        subject.driver.fill(mapped.address, 0x11, 1, (size, 1, 1))
        subject.wait()
        fd = vmm.export_handle(page)
        try:
            said, output = _ask_peer(subject.where, fd, size)
        finally:
            os.close(fd)
        if not said:
            raise Broken(f"the other process ended: {output}")
        expect(said == b"y", "the other process read other bytes")
        expect(subject.read(mapped.address, size) == b"\x22" * size, "what the other process wrote is not here")


@GROUP.check
def same_process(subject: Subject) -> None:
    """A page that is imported where it was exported is the same memory."""
    size = subject.driver.granularity()[1]
    with VirtualMemoryManager(subject.driver) as vmm:
        page = vmm.alloc_physical(size, exportable=True)
        first = vmm.map(vmm.reserve(size), page, 0, access="read_write")
        fd = vmm.export_handle(page)
        try:
            second = vmm.map(vmm.reserve(size), vmm.import_handle(fd, size), 0, access="read_write")
        finally:
            os.close(fd)
        subject.driver.fill(first.address, 0x33, 1, (size, 1, 1))
        subject.wait()
        expect(subject.read(second.address, size) == b"\x33" * size, "it is other memory")


def _ask_peer(where: str, fd: int, size: int) -> tuple[bytes, str]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-c", _PEER, where, str(theirs.fileno()), str(size)]
        peer = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        theirs.close()
        try:
            socket.send_fds(ours, [b"f"], [fd])
            ours.settimeout(_SECONDS)
            said = ours.recv(1)
            _, trouble = peer.communicate(timeout=_SECONDS)
        finally:
            peer.kill()
            peer.wait()
    return said, next((line for line in reversed(trouble.splitlines()) if line.strip()), "it said nothing")
