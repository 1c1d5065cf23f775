"""Owns: the routes of copies: by the CPU, by a driver's boxes, in pieces, packed, or through the host.

Everything is queued on the stream that it is given, and nothing is waited for. Must not know: how a route is chosen.
"""

from __future__ import annotations

from tensormem._core import (
    Event,
    Storage,
    Stream,
    Tensor,
    TransferReport,
    copy_by_driver,
    copy_on_host,
    empty,
    prepare_use,
    reinterpret,
)
from tensormem.copy.side_streams import come_after, stream_beside
from tensormem.mr.current import get_pinned_resource

__all__ = ["run"]

_HOST = -1  # what a driver of GPUs calls memory of the host
_CHUNK = 4 << 20


def run(to: Tensor, source: Tensor, work: Stream, report: TransferReport, staging: list[Storage]) -> bool:
    """Queue the copy on `work`; whether a host function reads or writes pageable memory when its turn comes.

    The memory that it goes through is appended to `staging`, for the caller to record that `work` uses it. What fails
    only when its turn comes is told to `report`.
    """
    if report.route == "cpu":
        copy_on_host(to, source, work.driver, work, report)
        return False
    staged = report.route == "staged"
    if staged and to.is_contiguous and source.is_contiguous:
        _run_staged(to, source, work, report, staging)
        return True
    if staged and not (to.storage.direct and source.storage.direct):
        _run_beside(to, source, work, report, staging)
        return True
    if staged and _run_packed(to, source, work, staging):
        return True
    return _run_direct(to, source, work, staging)


def _run_direct(to: Tensor, source: Tensor, work: Stream, staging: list[Storage]) -> bool:
    if _by_driver(to, source, work) >= 0:
        return False
    _run_through_host(to, source, work, staging)
    return to.storage.host_accessible or source.storage.host_accessible


def _by_driver(to: Tensor, source: Tensor, work: Stream) -> int:
    return copy_by_driver(to, source, work.driver, work, to_device=_device(to), source_device=_device(source))


def _device(tensor: Tensor) -> int:
    return _HOST if tensor.storage.host_accessible else tensor.space.device_id


def _run_staged(to: Tensor, source: Tensor, work: Stream, report: TransferReport, staging: list[Storage]) -> None:
    """Two pieces of pinned memory in turn: while the driver copies one, a host function on a stream beside copies the
    other. All of it is queued at once; the streams wait for one another, and nobody else does."""
    left, right = reinterpret(to, "uint8"), reinterpret(source, "uint8")
    pieces = [_pinned(min(_CHUNK, to.nbytes), "uint8", work, staging) for _ in range(2)]
    side = stream_beside(work)
    upload = source.storage.mappable
    first, second = (side, work) if upload else (work, side)
    come_after(side, work)
    emptied: list[Event | None] = [None, None]
    for turn, start in enumerate(range(0, to.nbytes, _CHUNK)):
        end = min(start + _CHUNK, to.nbytes)
        piece, before = pieces[turn % 2][: end - start], emptied[turn % 2]
        if before is not None:
            first.wait(before)
        _move(piece, right[start:end], first, report if upload else None)
        come_after(second, first)
        _move(left[start:end], piece, second, None if upload else report)
        emptied[turn % 2] = second.record()
    come_after(work, side)


def _move(to: Tensor, source: Tensor, stream: Stream, by_host: TransferReport | None) -> None:
    if by_host is not None:
        copy_on_host(to, source, stream.driver, stream, by_host)
    else:
        _by_driver(to, source, stream)


def _run_beside(to: Tensor, source: Tensor, work: Stream, report: TransferReport, staging: list[Storage]) -> None:
    """Pinned memory stands in for memory whose owner is told when the CPU touches it: the driver knows only that."""
    packed = _pinned(to.shape, to.dtype, work, staging)
    if source.storage.mappable:
        copy_on_host(packed, source, work.driver, work, report)
        _run_direct(to, packed, work, staging)
    else:
        _run_direct(packed, source, work, staging)
        copy_on_host(to, packed, work.driver, work, report)


def _run_packed(to: Tensor, source: Tensor, work: Stream, staging: list[Storage]) -> bool:
    """The driver gathers into pinned memory, and a host function has the rest; False where no boxes will do."""
    packed = _pinned(to.shape, to.dtype, work, staging)
    if _by_driver(packed, source, work) < 0:
        return False
    copy_on_host(to, packed, work.driver, work)
    return True


def _run_through_host(to: Tensor, source: Tensor, work: Stream, staging: list[Storage]) -> None:
    """No boxes describe this pair of layouts: a host function rearranges images of both in pinned memory."""
    left, right = _image(to, work, staging), _image(source, work, staging)
    copy_on_host(left, right, work.driver, work)
    if left is not to:
        _by_driver(_bytes_of(to), _bytes_of(left), work)


def _image(tensor: Tensor, work: Stream, staging: list[Storage]) -> Tensor:
    if tensor.storage.host_accessible:
        return tensor
    whole = _bytes_of(tensor)
    image = _pinned(whole.nbytes, "uint8", work, staging)
    _by_driver(image, whole, work)
    return Tensor(image.storage, tensor.dtype, tensor.shape, strides=tensor.strides, offset=tensor.offset)


def _pinned(shape: tuple[int, ...] | int, dtype: object, work: Stream, staging: list[Storage]) -> Tensor:
    made = empty(shape, dtype, mr=get_pinned_resource(work.driver))
    staging.append(made.storage)
    prepare_use(made.storage, work, "write")
    return made


def _bytes_of(tensor: Tensor) -> Tensor:
    return Tensor(tensor.storage, "uint8", (tensor.storage.nbytes,))
