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
    empty,
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
    driver = _driver_of(storage, stream) if storage.direct or not storage.bracketed else None
    if driver is None:
        # The stream is a GPU's, which does not reach the memory, or its owner is told of the access: the CPU takes its
        # turn there.
        transfer(tensor, _filled(tensor, pattern), stream)
        return
    with using(storage):
        _fill_on(stream_on(driver, stream), tensor, pattern)


def _driver_of(storage: Storage, stream: StreamLike | None) -> Driver | None:
    """Whose fill it is: the stream's where the memory is reached from there, else the memory's own."""
    if isinstance(stream, Stream) and storage.host_accessible:
        return stream.driver if stream.driver is host() or storage.space is not main else None
    if storage.host_accessible:
        return None
    if storage.driver is None:
        raise errors.MemoryUnavailable(str(storage.space), "its driver is not loaded, so nothing here can fill it")
    return storage.driver


def _fill_on(work: Stream, tensor: Tensor, pattern: bytes) -> None:
    storage = tensor.storage
    inline = work.driver.name == "host" and work.is_default
    come_after_copies(tensor, work, inline)
    prepare_use(storage, work, "write")
    device = _HOST if storage.host_accessible else tensor.space.device_id
    try:
        filled = fill_on(tensor, pattern, work, 0 if work.driver.name == "host" else device)
    except BaseException:
        # Some of it may have been queued.
        finish_uses(work, [(storage, "write")])
        raise
    if not filled:
        # No few boxes describe this layout: it is copied from memory that is filled.
        transfer(tensor, _filled(tensor, pattern), None if work.is_default else work)
        return
    if not inline:
        finish_uses(work, [(storage, "write")])
        mark_written(storage, work.record())


def _filled(tensor: Tensor, pattern: bytes) -> Tensor:
    made = empty(tensor.shape, tensor.dtype)
    fill_now(made, pattern)
    return made
