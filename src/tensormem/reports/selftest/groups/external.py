"""Owns: the checks of memory that another driver made and that comes in by a descriptor."""

from __future__ import annotations

import os

from tensormem import errors
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import NotOffered, expect
from tensormem.tensor import empty, from_external_fd, full

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("external", "Memory of others")
_BYTES = 65536


@GROUP.check
def descriptor(subject: Subject) -> None:
    """Memory behind a descriptor is read by the device, without a copy, and given back."""
    assert subject.platform is not None
    fd = _frame(subject)
    try:
        frame = from_external_fd(fd, "uint8", (_BYTES,), space=subject.where, nbytes=_BYTES)
    except (errors.DriverError, errors.NotSupported) as refusal:
        raise NotOffered(f"the driver does not import DMA-BUFs: {refusal}") from None
    finally:
        os.close(fd)
    expect(bytes(frame.to("main")) == b"\x31" * _BYTES, "the device reads other bytes")
    frame.close()
    empty(1)  # what was closed while a copy used it is given back with the next allocation
    left = subject.platform.held["externals"]
    expect(left == 0, f"{left} imports are still held")


def _frame(subject: Subject) -> int:
    """A DMA-BUF; the simulated GPU takes a memory file for one."""
    if subject.info["simulated"]:
        fd = os.memfd_create("frame")
        os.pwrite(fd, b"\x31" * _BYTES, 0)
        return fd
    try:
        made = full(_BYTES, 0x31, "uint8", memory="dma")
    except errors.TensormemError as refusal:
        raise NotOffered(f"this machine makes no DMA-BUF to import: {refusal}") from None
    return made.clone_fd()
