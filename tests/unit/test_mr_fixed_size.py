"""FixedSizeMemoryResource: blocks of one size."""

from itertools import pairwise

import pytest

from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.resources import Gate

KIB = 1 << 10


def test_blocks_come_from_the_upstream_by_the_handful() -> None:
    upstream = mr.StatisticsResourceAdaptor(mr.HostMemoryResource())
    fixed = mr.FixedSizeMemoryResource(upstream, "4KiB", 4)
    assert upstream.allocation_counts.total_count == 0
    blocks = [fixed.allocate(nbytes) for nbytes in (1, 100, 4095, 4096)]
    assert upstream.allocation_counts.total_count == 1
    assert len({block.ptr for block in blocks}) == 4
    fifth = fixed.allocate(7)
    assert upstream.allocation_counts.total_count == 2
    assert fixed.bytes_outstanding == 1 + 100 + 4095 + 4096 + 7
    assert fifth.nbytes == 7


def test_nothing_larger_than_a_block_fits() -> None:
    fixed = mr.FixedSizeMemoryResource(mr.HostMemoryResource(), 4096, 4)
    with pytest.raises(errors.OutOfMemory) as caught:
        fixed.allocate(4097)
    assert (caught.value.requested, caught.value.largest_free) == (4097, 4096)
    assert fixed.bytes_outstanding == 0


@pytest.mark.parametrize("block_size", [1, 3, 255, 257, 1000])
def test_an_odd_block_size_works(block_size: int) -> None:
    fixed = mr.FixedSizeMemoryResource(mr.HostMemoryResource(), block_size, 5)
    blocks = [fixed.allocate(block_size) for _ in range(12)]
    spans = sorted((block.ptr, block.ptr + block.nbytes) for block in blocks)
    assert all(left[1] <= right[0] for left, right in pairwise(spans))


def test_trim_gives_back_what_is_not_used() -> None:
    upstream = mr.HostMemoryResource()
    fixed = mr.FixedSizeMemoryResource(upstream, "4KiB", 4)
    first = [fixed.allocate(1) for _ in range(8)]
    keep = first.pop(0)
    first.clear()
    assert fixed.trim() == 4 * 4 * KIB
    assert (upstream.bytes_outstanding, keep.state) == (4 * 4 * KIB, "live")
    assert "1 out" in fixed.describe()


def test_a_block_of_a_busy_stream_is_reused_on_that_stream_only() -> None:
    fixed, gate = mr.FixedSizeMemoryResource(mr.HostMemoryResource(), "4KiB", 4), Gate()
    with Stream(host()) as busy:
        gate.hold(busy)
        block = fixed.allocate(100, busy)
        fixed.deallocate(block, busy)
        assert fixed.allocate(100).ptr != block.ptr
        assert fixed.allocate(4000, busy).ptr == block.ptr
        gate.open()


@pytest.mark.parametrize(
    ("block_size", "blocks", "error"),
    [
        (0, 4, errors.InvalidSize),
        ("12 potatoes", 4, errors.InvalidSize),
        (4096, 0, errors.InvalidArgument),
        (4096, -1, errors.InvalidArgument),
        (4096, 1.5, errors.InvalidArgument),
        (4096, 2**40, errors.InvalidArgument),
    ],
)
def test_bad_options_are_refused(block_size: int | str, blocks: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        mr.FixedSizeMemoryResource(mr.HostMemoryResource(), block_size, blocks)
