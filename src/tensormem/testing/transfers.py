"""Owns: the promises of copies between spaces, as a suite that any pair of spaces can join.

Subclass `TransferConformance` in a test file, say the spaces, and pytest runs every promise on every pair of them.
Must not know: which driver copies.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import tensormem as tm
from tensormem import errors
from tensormem.copy import finish
from tensormem.streams import Stream
from tensormem.testing.resource_suite import Gate

__all__ = ["TransferConformance"]

_SHAPES: list[tuple[int, ...]] = [(), (7,), (33, 65), (3, 5, 7, 11), (5, 1 << 18)]


def _values(shape: tuple[int, ...]) -> tm.Tensor:
    """A tensor of main memory whose elements are all different."""
    count = 1
    for length in shape:
        count *= length
    raw = b"".join(number.to_bytes(4, "little") for number in range(count))
    return tm.from_buffer(bytearray(raw), "int32", shape)


def _same(a: tm.Tensor, b: tm.Tensor) -> bool:
    return a.shape == b.shape and bytes(a.to("main").contiguous()) == bytes(b.to("main").contiguous())


@contextmanager
def _held(stream: Stream) -> Iterator[None]:
    """While the body runs, the stream does nothing. Giving memory back may wait for it, so old copies let go first."""
    finish(stream.driver.name)
    gate = Gate()
    gate.hold(stream)
    try:
        yield
    finally:
        gate.open()


class TransferConformance:
    """What every copy promises. Say the spaces in `spaces`, and how to make a stream that joins them in `make_stream`.

    >>> class TestMine(TransferConformance):
    ...     spaces = ("main", "pinned")
    """

    spaces: Sequence[str] = ("main",)

    def make_stream(self) -> Stream:
        """A stream on which copies between all these spaces can be ordered."""
        return Stream(tm.drivers.host())

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every pair of different spaces."""
        return [(first, second) for first in self.spaces for second in self.spaces if first != second]

    @pytest.mark.parametrize("shape", _SHAPES)
    def test_values_arrive_as_they_were_between_every_pair(self, shape: tuple[int, ...]) -> None:
        values = _values(shape)
        for first, second in self.pairs:
            moved = values.to(first).to(second)
            assert str(moved.space) == second and moved.dtype == values.dtype
            assert _same(moved, values), f"{first} to {second}"

    def test_copies_on_a_stream_are_ready_when_it_has_passed(self) -> None:
        values = _values((3, 1 << 17))
        for first, second in self.pairs:
            with self.make_stream() as stream:
                source = values.to(first).wait()
                with _held(stream):
                    moved = source.to(second, stream=stream)
                    assert not moved.ready and not moved.transfer_report.done, f"{first} to {second}"
                    assert moved.transfer_report.seconds is None
                moved.wait()
                assert moved.ready and moved.transfer_report.done and moved.transfer_report.seconds > 0
                assert _same(moved, values), f"{first} to {second}"
                del source, moved

    def test_the_source_may_be_dropped_while_the_copy_is_queued(self) -> None:
        values = _values((1 << 17,))
        for first, second in self.pairs:
            with self.make_stream() as stream:
                source = values.to(first).wait()
                with _held(stream):
                    moved = source.to(second, stream=stream)
                    del source
                assert _same(moved.wait(), values), f"{first} to {second}"
                del moved

    def test_every_layout_is_copied_whole_and_leaves_its_gaps(self) -> None:
        values = _values((6, 7, 8))
        for space in self.spaces:
            for view in _views():
                there = values.to(space, copy=True)
                assert _same(view(there), view(values)), f"{space}, out of a view"
                target = tm.zeros((6, 7, 8), "int32", space=space)
                expected = tm.zeros((6, 7, 8), "int32")
                view(target).copy_(view(there))
                target.wait()
                view(expected).copy_(view(values))
                assert _same(target, expected), f"{space}, into a view"

    def test_the_report_tells_what_was_copied_and_how(self) -> None:
        values = _values((100,))
        for first, second in self.pairs:
            report = values.to(first).to(second).wait().transfer_report
            assert (report.nbytes, str(report.source), str(report.destination)) == (400, first, second)
            assert report.route and report.why and report.done

    def test_nothing_moves_unless_it_is_told_to(self) -> None:
        for first, second in self.pairs:
            a, b = tm.zeros(4, space=first), tm.zeros(4, space=second)
            with pytest.raises(errors.CrossSpaceError):
                a.copy_(b)
            with pytest.raises(errors.CrossSpaceError):
                a.to(second, copy=False)
            assert a.to(first) is a and a.to(first, copy=True) is not a

    def test_tensors_of_nothing_go_everywhere(self) -> None:
        for first, second in self.pairs:
            moved = tm.zeros((0, 3), space=first).to(second)
            assert moved.shape == (0, 3) and str(moved.space) == second and moved.ready


def _views() -> list[Any]:
    return [
        lambda a: a[:, :, ::2],
        lambda a: a[::-1],
        lambda a: a[:, 1:3],
        lambda a: a.permute(2, 0, 1),
        lambda a: a.permute(1, 0, 2)[::-1, :, ::-1],
        lambda a: a[::-1, ::-1, ::-1],
        lambda a: a[2, :, 3],
    ]
