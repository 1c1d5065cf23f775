"""Owns: the checks of elastic pools and resources on the device."""

from __future__ import annotations

from tensormem import mr
from tensormem.pools import VirtualMemoryPool
from tensormem.reports.selftest.group import Group
from tensormem.reports.selftest.promise import expect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.reports.selftest.subject import Subject

GROUP = Group("elastic", "Elastic pools", "virtual_memory", gpu_only=False)


def _page(subject: Subject) -> int:
    return max(2 << 20, subject.driver.granularity()[0])


@GROUP.check
def resource(subject: Subject) -> None:
    """A block larger than any hole gets the pages of many."""
    page = _page(subject)
    elastic = mr.ElasticMemoryResource(subject.driver, page_size=page, physical_limit=8 * page)
    blocks = [elastic.allocate(page) for _ in range(8)]
    for block in blocks[::2]:
        elastic.deallocate(block)
    large = elastic.allocate(4 * page)
    subject.driver.fill(large.ptr, 4, 1, (4 * page, 1, 1))
    expect(subject.read(large.ptr, 4 * page) == b"\x04" * (4 * page), "other bytes came back")
    for block in (large, *blocks[1::2]):
        elastic.deallocate(block)
    elastic.trim()
    expect(elastic.physical_bytes == 0, f"{elastic.physical_bytes} bytes stay after a trim")


@GROUP.check
def reservation(subject: Subject) -> None:
    """Addresses for more than the memory of the device are there."""
    elastic = mr.ElasticMemoryResource(subject.driver, page_size=_page(subject))
    total = subject.driver.memory_info()[1]
    expect(elastic.capacity >= total, f"{elastic.capacity} bytes of addresses for {total} bytes of memory")


@GROUP.check
def pool(subject: Subject) -> None:
    """A pool maps pages on demand, keeps bytes through a compaction and gives all pages back."""
    page = _page(subject)
    with VirtualMemoryPool(16 * page, page_size=page, device=subject.space) as elastic:
        address = elastic.allocate(0, 2 * page)
        subject.driver.fill(address, 6, 1, (2 * page, 1, 1))
        expect(subject.read(address, 2 * page) == b"\x06" * (2 * page), "other bytes came back")
        expect(elastic.physical_memory_usage == 2 * page, f"{elastic.physical_memory_usage} bytes are held")
        elastic.deallocate(0, 2 * page)
