"""Owns: setting the values of tensors: by the CPU at once, or by the driver in the order of a stream.

Must not know: how tensors are made or shown.
"""

from __future__ import annotations

from tensormem import errors
from tensormem._core import (
    Driver,
    Storage,
    Stream,
    StreamLike,
    Tensor,
    TransferReport,
    empty,
    fill_in_turn,
    fill_now,
    fill_on,
    finish_uses,
    mark_written,
    prepare_use,
    stream_on,
    using,
)
from tensormem.copy.transfer import come_after_copies, transfer
from tensormem.drivers import host
from tensormem.spaces import main

__all__ = ["fill"]

_HOST = -1  # what a driver of GPUs calls memory of the host


def fill(tensor: Tensor, pattern: bytes, stream: StreamLike | None) -> None:
    """Set every element of a tensor to the bytes of `pattern`; see `Tensor.fill_`."""
    if tensor.readonly:
        raise errors.InvalidArgument("the tensor is read-only")
    if not tensor.size:
        return
    storage = tensor.storage
    if storage.mappable and stream is None:
        fill_now(tensor, pattern)
        return
    driver = _driver_of(storage, stream)
    work = stream_on(_driver_of_stream(stream) if driver is None else driver, stream)
    if storage.mappable and work.driver is host() and work.is_default:
        fill_now(tensor, pattern)
        return
    with using(storage):
        _fill_on(work, tensor, pattern, by_cpu=driver is None)


def _fill_on(work: Stream, tensor: Tensor, pattern: bytes, *, by_cpu: bool) -> None:
    storage = tensor.storage
    if work.closed:
        raise errors.StreamMisuse(work.id, what="the stream was destroyed, or belongs to another process")
    come_after_copies(tensor, work, inline=False)
    prepare_use(storage, work, "write")
    device = 0 if work.driver is host() else _HOST if storage.host_accessible else tensor.space.device_id
    try:
        filled = not by_cpu and fill_on(tensor, pattern, work, device)
        if not filled and storage.mappable:
            filled = _fill_in_turn(work, tensor, pattern)
    except BaseException:
        # Some of it may have been queued.
        finish_uses(work, [(storage, "write")])
        raise
    if not filled:
        # No few boxes describe this layout: it is copied from memory that is filled.
        transfer(tensor, _filled(tensor, pattern), None if work.is_default else work)
        return
    finish_uses(work, [(storage, "write")])
    mark_written(storage, work.record())


def _fill_in_turn(work: Stream, tensor: Tensor, pattern: bytes) -> bool:
    report = TransferReport(tensor.nbytes, "cpu", "the CPU takes its turn on the stream", tensor.space, tensor.space)
    start = work.record(timing=True)
    fill_in_turn(tensor, pattern, work, report)
    report.runs_between(start, work.record(timing=True))
    tensor.storage.transfer = report
    return True


def _filled(tensor: Tensor, pattern: bytes) -> Tensor:
    made = empty(tensor.shape, tensor.dtype)
    fill_now(made, pattern)
    return made


def _driver_of(storage: Storage, stream: StreamLike | None) -> Driver | None:
    """Whose fill it is: the stream's where the memory is reached from there, else the memory's own; None where the CPU
    has to take its turn on the stream."""
    if storage.mappable:
        if not storage.direct or not isinstance(stream, Stream):
            return None
        return stream.driver if stream.driver is host() or storage.space is not main else None
    if storage.driver is None:
        raise errors.MemoryUnavailable(str(storage.space), "its driver is not loaded, so nothing here can fill it")
    return storage.driver


def _driver_of_stream(stream: StreamLike | None) -> Driver:
    return stream.driver if isinstance(stream, Stream) else host()
