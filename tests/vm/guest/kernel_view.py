"""Owns: the kernel's own view of DMA-BUFs, for tests that do not believe ours: raw buffers, counts, traces, mappings.

Nothing here uses tensormem; the numbers are written out again. Must not know: any test.
"""

import fcntl
import os
import re
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SYNC = 0x40086200
TRACING = Path("/sys/kernel/tracing")


def raw_buffer(nbytes: int, flags: int = os.O_RDWR) -> int:
    """A DMA-BUF of the system heap, by bare calls."""
    heap = os.open("/dev/dma_heap/system", os.O_RDWR)
    try:
        data = bytearray(struct.pack("=QIIQ", nbytes, 0, flags | os.O_CLOEXEC, 0))
        fcntl.ioctl(heap, 0xC0184800, data)
        return int(struct.unpack("=QIIQ", data)[1])
    finally:
        os.close(heap)


def live_buffers() -> int:
    """How many DMA-BUFs the whole machine holds."""
    text = Path("/sys/kernel/debug/dma_buf/bufinfo").read_text()
    return int(re.findall(r"Total (\d+) objects", text)[0])


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def protections(address: int) -> str:
    """What may be done at an address, such as "rw-s", by /proc."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(number, 16) for number in line.split()[0].split("-"))
        if begin <= address < end:
            return line.split()[1]
    return "not mapped"


@contextmanager
def traced_syncs() -> Iterator[list[str]]:
    """A list that is filled, at the end, with the SYNC calls of this process that the kernel saw."""
    if not (TRACING / "events").exists():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", str(TRACING)], check=True)
    event = TRACING / "events" / "syscalls" / "sys_enter_ioctl"
    (event / "filter").write_text(f"cmd == {SYNC} && common_pid == {os.getpid()}")
    (TRACING / "trace").write_text("")
    (event / "enable").write_text("1")
    seen: list[str] = []
    try:
        yield seen
    finally:
        (event / "enable").write_text("0")
        lines = (TRACING / "trace").read_text().splitlines()
        seen.extend(line for line in lines if "sys_ioctl" in line and not line.startswith("#"))
