"""Owns: moving the values of tensors: which way a copy goes, who waits for whom, and what is told about it.

Nothing moves by itself: `to` and `copy_` are the only doors. Must not know: how tensors are made or shown.
"""

from __future__ import annotations

import time
from contextlib import suppress

from tensormem import drivers, errors
from tensormem._core import (
    DeviceBlock,
    DeviceMemoryResource,
    Driver,
    Storage,
    Stream,
    StreamLike,
    Tensor,
    TransferReport,
    check_same_layout,
    empty,
    finish_uses,
    install_transfers,
    mark_written,
    prepare_use,
    shares_streams,
    stream_on,
    tensors_overlap,
    using,
    written_until,
)
from tensormem.copy.routes import run
from tensormem.copy.side_streams import come_after, streams_of
from tensormem.drivers import resolve
from tensormem.memories.mem import resource_of, vendor_of
from tensormem.spaces import SpaceKind, main

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["clone", "come_after_copies", "to", "transfer"]

_STAGED_FROM = 64 << 10  # below this a driver's own way with pageable memory is as fast


def to(tensor: Tensor, space: WhereLike, *, stream: StreamLike | None = None, copy: bool | None = None) -> Tensor:
    """The values of `tensor` in `space`; see `Tensor.to`.

    >>> import tensormem as tm
    >>> a = tm.zeros(4)
    >>> to(a, "main") is a, to(a, "pinned").space
    (True, tm.pinned)
    """
    where = resolve(space)
    wanted = where.space
    if tensor.space is wanted and (where.vendor is None or _vendor(tensor) == where.vendor):
        return clone(tensor, stream=stream) if copy else tensor
    if copy is False:
        raise errors.CrossSpaceError(tensor.space, where, what="copy=False allows no move")
    made = empty(tensor.shape, tensor.dtype, mr=resource_of(where)) if tensor.size else _nothing(tensor, where)
    if _vendor(made) is not None and _vendor(tensor) not in (None, _vendor(made)):
        # No driver reaches the GPUs of another vendor: the bytes go through main memory.
        tensor = to(tensor, main, stream=stream).wait()
    transfer(made, tensor, stream)
    return made


def _vendor(tensor: Tensor) -> str | None:
    """Whose GPU a tensor is on; None where the CPU reaches it."""
    driver = tensor.storage.driver
    return None if driver is None or tensor.space.kind is not SpaceKind.GPU else vendor_of(driver)


def clone(tensor: Tensor, *, stream: StreamLike | None = None) -> Tensor:
    """A copy of `tensor` in the same space, row-major without gaps.

    >>> import tensormem as tm
    >>> clone(tm.zeros((2, 3)).T).strides
    (2, 1)
    """
    made = empty(tensor.shape, tensor.dtype, mr=_resource_beside(tensor)) if tensor.size else _nothing(tensor)
    transfer(made, tensor, stream)
    return made


def _copy_into(to: Tensor, source: Tensor, stream: StreamLike | None) -> TransferReport:
    """What `copy_into` does when more has to be thought of than two layouts in main memory."""
    if not isinstance(source, Tensor):
        raise errors.InvalidArgument(f"the source of a copy is a tensor, not {type(source).__name__}; see tm.wrap")
    check_same_layout(to, source)
    if to.space is not source.space:
        raise errors.CrossSpaceError(to.space, source.space)
    if _vendor(to) != _vendor(source):
        raise errors.CrossSpaceError(to.space, source.space, what="they are GPUs of two vendors")
    if to.readonly:
        raise errors.InvalidArgument("the destination is read-only")
    if tensors_overlap(to, source):
        source = clone(source, stream=stream)
    return transfer(to, source, stream)


def _nothing(tensor: Tensor, space: WhereLike | None = None) -> Tensor:
    return empty(tensor.shape, tensor.dtype, space=tensor.space if space is None else space)


def _resource_beside(tensor: Tensor) -> DeviceMemoryResource:
    """The resource that made the tensor's own memory, or the one of its space."""
    owner = tensor.storage.owner
    return owner.mr if isinstance(owner, DeviceBlock) else resource_of(tensor.space)


def transfer(to: Tensor, source: Tensor, stream: StreamLike | None) -> TransferReport:
    """Copy the values of `source` into `to`, by the route for their memory, in the order of `stream`."""
    driver, route, why = _route(to, source, stream)
    report = TransferReport(to.nbytes, route, why, source.space, to.space)
    if to.nbytes == 0:
        report.took(0.0)
        to.storage.transfer = report
        return report
    with using(to.storage, source.storage):
        return _transfer_on(stream_on(driver, stream), to, source, report, asked=stream is not None)


def _transfer_on(work: Stream, to: Tensor, source: Tensor, report: TransferReport, *, asked: bool) -> TransferReport:
    driver = work.driver
    inline = driver.name == "host" and work.is_default
    come_after_copies(source, work, inline)
    come_after_copies(to, work, inline)
    far = [] if inline else _defaults_elsewhere(work, to, source)
    for default in far:
        come_after(work, default)
    to.storage.transfer = report
    uses = [(source.storage, "read"), (to.storage, "write")]
    for storage, access in uses:
        prepare_use(storage, work, access)
    start = time.perf_counter()
    begun = None if inline else work.record(timing=True)
    staging: list[Storage] = []
    try:
        late = run(to, source, work, report, staging)
        if begun is None:
            report.took(time.perf_counter() - start)
            return report
    except BaseException:
        # Some of it may have been queued: what the streams can still touch stays until they have passed.
        for each in [] if inline else streams_of(work):
            with suppress(errors.TensormemError):  # which keeps the memory too, and the first failure is to be heard
                finish_uses(each, [*uses, *((storage, "write") for storage in staging)])
        raise
    finish_uses(work, [*uses, *((storage, "write") for storage in staging)])
    end = work.record(timing=True)
    report.runs_between(begun, end)
    if not asked:
        for default in far:
            default.wait(end)
    mark_written(to.storage, end)
    if late and not asked:
        # Nobody asked for a stream: pageable memory is free to change when the call returns, as it always was.
        to.wait()
    return report


def _defaults_elsewhere(work: Stream, *tensors: Tensor) -> list[Stream]:
    """The default streams of the other devices whose memory is copied: others may have queued work on them that we know
    nothing of, and rely on their order as they would on one device."""
    found = {tensor.storage.driver for tensor in tensors if not tensor.storage.mappable}
    return [Stream.default(driver) for driver in found if driver not in (None, work.driver)]


def _route(to: Tensor, source: Tensor, stream: StreamLike | None) -> tuple[Driver, str, str]:
    host = drivers.host()
    far = [tensor.storage for tensor in (to, source) if not tensor.storage.mappable]
    if not far:
        if isinstance(stream, Stream) and stream.driver is not host:
            if main in (to.space, source.space):
                return stream.driver, "cpu", "the CPU reaches both sides, and waits for its turn on the stream"
            return stream.driver, "driver", "the stream is the GPU's, and both sides are memory it reaches"
        return host, "cpu", "the CPU reaches both sides"
    driver = far[0].driver
    if driver is None:
        raise errors.MemoryUnavailable(str(far[0].space), "its driver is not loaded, so nothing here can copy it")
    if main not in (to.space, source.space):
        return driver, "driver", "the driver copies between these two itself"
    if not all(tensor.storage.direct for tensor in (to, source) if tensor.storage.mappable):
        return driver, "staged", "its owner is told when the CPU touches it, so pinned memory stands in for it"
    if to.nbytes >= _STAGED_FROM and to.is_contiguous and source.is_contiguous:
        return driver, "staged", "pageable memory of this size goes through pinned memory in pieces"
    if stream is not None and to.space is main:
        return driver, "staged", "a driver waits for pageable memory, so pinned memory stands in for it on the stream"
    return driver, "driver", "the driver copies between these two itself"


def come_after_copies(tensor: Tensor, work: Stream, inline: bool) -> None:
    """Let `work` come after what writes `tensor` at this moment, if anything does."""
    end = written_until(tensor.storage)
    if end is None or tensor.ready:
        return
    if not inline and shares_streams(end.driver, work.driver):
        work.wait(end)
    elif not inline and work.driver is drivers.host():
        work.launch(end.synchronize)  # its worker waits, and nobody else
    else:
        tensor.wait()


install_transfers(_copy_into)
