"""Owns: the numbers and structs by which Linux is asked for DMA-BUFs, and asking it until it gives a real answer.

Declared from the kernel's own description of its interface (linux/dma-buf.h, dma-heap.h, udmabuf.h). A number says the
direction of its struct (1 into the kernel, 2 out of it), the size of it, a letter and an index; this is the layout of
x86, ARM, RISC-V and most others. Must not know: what the calls are made for.
"""

from __future__ import annotations

import errno
import fcntl
import os

from tensormem import errors

__all__ = ["ask", "failure"]

_INTO, _OUT = 1, 2


def _number(direction: int, letter: str, index: int, nbytes: int) -> int:
    return direction << 30 | nbytes << 16 | ord(letter) << 8 | index


# struct dma_buf_sync { u64 flags; }: which access, and whether it starts (0) or ends (4).
SYNC = _number(_INTO, "b", 0, 8)
# The text itself, ended by a zero, at most 32 bytes of it. Written as if it were a u64 since Linux 5.6 ("B").
SET_NAME = _number(_INTO, "b", 1, 8)
# struct dma_buf_export_sync_file { u32 flags; s32 fd (out); }, struct dma_buf_import_sync_file { u32 flags; s32 fd; }
EXPORT_SYNC_FILE = _number(_INTO | _OUT, "b", 2, 8)
IMPORT_SYNC_FILE = _number(_INTO, "b", 3, 8)
# struct dma_heap_allocation_data { u64 len; u32 fd (out); u32 fd_flags; u64 heap_flags (0); }
HEAP_ALLOC = _number(_INTO | _OUT, "H", 0, 24)
# struct udmabuf_create { u32 memfd; u32 flags (1: close on exec); u64 offset; u64 size; }; the answer is the new fd.
UDMABUF_CREATE = _number(_INTO, "u", 0x42, 24)

DMA_BUF_MAGIC = 0x444D4142
"""What `fstatfs` gives as the type of the file system of every DMA-BUF."""


def ask(fd: int, number: int, struct: bytearray) -> int:
    """The kernel's answer, as often as it takes: a signal, or a device that is busy, is no answer. Raises OSError.

    `struct` is changed by calls that give something back. Other threads run meanwhile.
    """
    while True:
        try:
            return int(fcntl.ioctl(fd, number, struct))
        except OSError as refused:
            if refused.errno not in (errno.EINTR, errno.EAGAIN):
                raise


def failure(refused: OSError, call: str) -> errors.DriverError:
    """The error of ours for a call that the kernel refused.

    >>> failure(OSError(errno.EMFILE, "Too many open files"), "open").name
    'EMFILE'
    """
    code = refused.errno or 0
    return errors.DriverError(code, errno.errorcode.get(code, "an unknown code"), os.strerror(code), call)
