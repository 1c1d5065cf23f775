"""Arguments that never end, that answer differently each time, or that point where no process has memory."""

import itertools
from collections.abc import Iterator

import pytest

import tensormem as tm
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
        tm.from_dlpack(MadeProducer([2, 2], [1.0, 2.0, 3.0, 4.0], byte_offset=offset))
