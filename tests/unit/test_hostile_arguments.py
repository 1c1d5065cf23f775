"""Arguments that never end, that answer differently each time, or that point where no process has memory."""

import errno
import itertools
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tensormem as tm
from support.traces import record_steps
from tensormem import errors, mr
from tensormem.testing.dlpack_structs import MadeProducer


@pytest.mark.parametrize("shape", [range(2**40), itertools.repeat(1), [1] * 65, range(65)], ids=repr)
def test_a_shape_of_too_many_lengths_is_refused_at_once(shape: object) -> None:
    for make in (tm.empty, tm.zeros):
        with pytest.raises(errors.InvalidArgument, match="at most 64 dimensions"):
            make(shape)  # type: ignore[arg-type]


def test_a_shape_that_grows_while_it_is_read_is_refused() -> None:
    class Growing:
        def __index__(self) -> int:
            shape.append(self)
            return 1

    shape: list[Growing] = [Growing()]
    with pytest.raises(errors.InvalidArgument, match="at most 64 dimensions"):
        tm.empty(shape)


def test_a_shape_may_be_any_iterable_of_lengths() -> None:
    def lengths() -> Iterator[int]:
        yield from (2, 3)

    assert tm.empty(lengths()).shape == tm.empty(range(2, 4)).shape == (2, 3)
    assert tm.empty([1] * 64).ndim == 64


def test_a_reservation_asks_for_its_size_once() -> None:
    class Falling:
        sizes = iter((64, 4096))

        def __index__(self) -> int:
            return next(self.sizes)

    budget = mr.LimitingResourceAdaptor(mr.HostMemoryResource(), 128)
    with budget.reserve(Falling()) as reservation:  # type: ignore[arg-type]
        assert (reservation.remaining, budget.reserved_bytes) == (64, 64)


@pytest.mark.parametrize("offset", [1 << 57, 1 << 60, 0x00FF << 48, 1 << 63])
def test_a_dlpack_offset_to_where_no_process_has_memory_is_refused(offset: int) -> None:
    with pytest.raises(BufferError):
        tm.from_dlpack(MadeProducer([2, 2], [1.0, 2.0, 3.0, 4.0], spoiled={"byte_offset": offset}))


def test_a_tag_that_is_not_in_force_cannot_end() -> None:
    scope = tm.tag("weights")
    with pytest.raises(errors.InvalidArgument, match="not in force here"):
        scope.__exit__(None, None, None)
    with tm.tag("kv"):
        assert mr.HostMemoryResource().allocate(64).tag == "kv"


@pytest.mark.parametrize("ids", [range(2**40), itertools.repeat(1)], ids=repr)
def test_ids_of_blocks_without_an_end_are_refused(ids: object) -> None:
    with tm.BlockCache("2MiB", block_size="64KiB") as cache:
        kept = cache.allocate(1)
        with pytest.raises(errors.InvalidArgument, match=r"at most 16,777,216 ids"):
            cache.addresses(ids)  # type: ignore[arg-type]
        assert len(cache.addresses(kept)) == 1


def test_a_trace_that_was_closed_says_so(tmp_path: Path) -> None:
    record_steps(tmp_path / "run.tmt")
    opened = tm.trace.open(tmp_path / "run.tmt")
    opened.close()
    for use in (opened.census, opened.lifetimes, opened.peaks, lambda: list(opened.events())):
        with pytest.raises(errors.UseAfterRelease, match="the trace was closed"):
            use()


def test_a_resource_of_a_trace_is_a_number(tmp_path: Path) -> None:
    record_steps(tmp_path / "run.tmt")
    with tm.trace.open(tmp_path / "run.tmt") as opened, pytest.raises(errors.InvalidArgument, match="number"):
        opened.blocks(resource=memoryview(b"abc"))  # type: ignore[arg-type]


def test_lifetimes_that_are_none_are_refused() -> None:
    for use in (tm.trace.peak_load, tm.trace.check_lifetimes):
        with pytest.raises(errors.InvalidLifetimes, match="a lifetime is"):
            use([(1, 2)])  # type: ignore[list-item]


def _make_channel() -> None:
    here, there = tm.Channel.pair()
    here.close()
    there.close()


def _make_ring() -> None:
    tm.FrameRing(2, 64).close()


def _make_tensor() -> None:
    tm.zeros(64, memory="shm").close()
    tm.mr.SharedMemoryResource().trim()


def _map_file() -> None:
    tm.from_file(__file__, "uint8").close()


@pytest.mark.parametrize("make", [_make_channel, _make_ring, _make_tensor, _map_file], ids=lambda make: make.__name__)
def test_running_out_of_descriptors_is_an_error_with_its_name(make: Callable[[], None]) -> None:
    make()  # what is loaded at first use is loaded
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    refused = 0
    try:
        for room in range(8):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + room, hard))
            try:
                make()
            except errors.DriverError as error:
                refused += 1
                assert error.name == "EMFILE"
            except OSError as error:  # Python's own, for a path of the caller's
                refused += 1
                assert (error.errno, error.filename) == (errno.EMFILE, __file__)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused > 0
    make()
