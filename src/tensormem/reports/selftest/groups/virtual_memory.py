"""Owns: the checks of virtual memory: addresses, pages, access, moves."""

from __future__ import annotations

import time

from tensormem import errors
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import expect
from tensormem.streams import Stream
from tensormem.vmm import VirtualMemoryManager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("virtual memory", "Virtual memory", "virtual_memory", gpu_only=False)


@GROUP.check
def pages(subject: Subject) -> None:
    """A page is created, mapped, opened, written, unmapped and destroyed."""
    size = subject.driver.granularity()[1]
    with VirtualMemoryManager(subject.driver) as vmm:
        addresses = vmm.reserve(2 * size)
        mapped = vmm.map(addresses, vmm.alloc_physical(size), size, access="read_write")
        subject.driver.fill(mapped.address, 0x5A, 1, (size, 1, 1))
        expect(subject.read(mapped.address, size) == b"\x5a" * size, "other bytes came back")


@GROUP.check
def moves(subject: Subject) -> None:
    """A page keeps its bytes when it gets another address."""
    size, driver = subject.driver.granularity()[1], subject.driver
    address = driver.reserve(2 * size)
    page = driver.physical_create(size)
    try:
        for place, wanted in ((address, None), (address + size, b"\x21" * 4096)):
            driver.map(place, size, page)
            driver.set_access(place, size, "read_write")
            if wanted is None:
                driver.fill(place, 0x21, 1, (4096, 1, 1))
                subject.wait()
            else:
                expect(subject.read(place, 4096) == wanted, "the bytes did not come along")
            driver.unmap(place, size)
    finally:
        driver.physical_destroy(page)
        driver.release(address, 2 * size)


@GROUP.check
def refusals(subject: Subject) -> None:
    """Wrong sizes are refused by name."""
    try:
        subject.driver.reserve(subject.driver.granularity()[0] + 1)
    except (errors.InvalidSize, errors.InvalidAlignment):
        return
    expect(False, "addresses that are no whole pages were reserved")


@GROUP.check
def unmapping_while_busy(subject: Subject) -> None:
    """Pages are mapped and unmapped while a host function is queued elsewhere."""
    size, driver = subject.driver.granularity()[1], subject.driver
    address = driver.reserve(size)
    page = driver.physical_create(size)
    with Stream(driver) as stream:
        for _ in range(2):
            stream.launch(time.sleep, 0.1)
        driver.map(address, size, page)
        driver.set_access(address, size, "read_write")
        driver.unmap(address, size)
        driver.physical_destroy(page)
        driver.release(address, size)
