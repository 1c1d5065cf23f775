"""BinningMemoryResource: the smallest bin that a block fits in."""

import pytest

from tensormem import errors, mr
from tensormem.drivers import host
from tensormem.streams import Stream
from tensormem.testing.resources import Gate

KIB = 1 << 10


def counted() -> mr.StatisticsResourceAdaptor:
    return mr.StatisticsResourceAdaptor(mr.HostMemoryResource())


def test_a_block_comes_from_the_smallest_bin_it_fits_in_and_goes_back_there() -> None:
    small, large, rest = counted(), counted(), counted()
    binning = mr.BinningMemoryResource(rest)
    binning.add_bin("64KiB", large)
    binning.add_bin("1KiB", small)
    assert binning.bin_sizes == [KIB, 64 * KIB]
    blocks = [binning.allocate(nbytes) for nbytes in (1, 1024, 1025, 65536, 65537)]
    assert [each.allocation_counts.current_count for each in (small, large, rest)] == [2, 2, 1]
    assert binning.bytes_outstanding == 1 + 1024 + 1025 + 65536 + 65537
    for block in blocks:
        binning.deallocate(block)
    assert [each.allocation_counts.current_count for each in (small, large, rest)] == [0, 0, 0]
    assert binning.bytes_outstanding == 0


def test_exponents_make_fixed_size_bins() -> None:
    upstream = counted()
    binning = mr.BinningMemoryResource(upstream, 8, 10)
    assert binning.bin_sizes == [256, 512, 1024]
    assert [type(each) for each in binning.bin_mrs] == [mr.FixedSizeMemoryResource] * 3
    blocks = [binning.allocate(300) for _ in range(20)]
    assert upstream.allocation_counts.total_count == 1
    assert len({block.ptr for block in blocks}) == 20


def test_bins_stay_as_they_are_while_blocks_are_out() -> None:
    binning = mr.BinningMemoryResource(mr.HostMemoryResource(), 8, 10)
    block = binning.allocate(2000)
    with pytest.raises(errors.InvalidArgument, match="before the first block"):
        binning.add_bin(4096)
    assert binning.bin_sizes == [256, 512, 1024]
    binning.deallocate(block)
    binning.add_bin(4096)
    assert binning.bin_sizes == [256, 512, 1024, 4096]


def test_a_bin_that_exists_or_holds_nothing_is_refused() -> None:
    binning = mr.BinningMemoryResource(mr.HostMemoryResource(), 8, 8)
    for size in (256, 0, -1, "12 potatoes"):
        with pytest.raises(errors.InvalidSize):
            binning.add_bin(size)
    with pytest.raises(errors.InvalidArgument):
        binning.add_bin(512, "no resource")  # type: ignore[arg-type]
    assert (binning.bin_sizes, len(binning.bin_mrs)) == ([256], 1)


@pytest.mark.parametrize("exponents", [(None, 3), (3, None), (5, 4), (-1, 3), (0, 41)])
def test_bad_exponents_are_refused(exponents: tuple[int | None, int | None]) -> None:
    with pytest.raises(errors.InvalidArgument):
        mr.BinningMemoryResource(mr.HostMemoryResource(), *exponents)


def test_what_waits_for_a_stream_in_a_bin_stays_counted() -> None:
    binning, gate = mr.BinningMemoryResource(mr.HostMemoryResource()), Gate()
    binning.add_bin("1MiB", mr.HostMemoryResource())
    with Stream(host()) as stream:
        gate.hold(stream)
        block = binning.allocate(1000, stream)
        binning.deallocate(block, stream)
        binning.reap_pending()
        assert (block.state, binning.bytes_outstanding) == ("retired", 1000)
        gate.open()
        stream.synchronize()
        binning.reap_pending()
        assert (block.state, binning.bytes_outstanding) == ("freed", 0)


def test_a_refusal_of_a_bin_changes_nothing() -> None:
    binning = mr.BinningMemoryResource(mr.HostMemoryResource())
    binning.add_bin(1024, mr.LimitingResourceAdaptor(mr.HostMemoryResource(), 1000))
    keep = binning.allocate(900)
    with pytest.raises(errors.OutOfBudget):
        binning.allocate(900)
    assert (binning.bytes_outstanding, keep.state) == (900, "live")
    assert binning.counters["current_count"] == 1
