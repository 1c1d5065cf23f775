"""Owns: moving the values of tensors: which way a copy goes, who waits for whom, and what is told about it.

Nothing moves by itself: `to` and `copy_` are the only doors. Must not know: how tensors are made or shown.
"""

from __future__ import annotations

import threading
import time
from itertools import count

from tensormem import drivers, errors
from tensormem._core import (
    DeviceBlock,
    DeviceMemoryResource,
    Driver,
    Event,
    Stream,
    StreamLike,
    Tensor,
    TransferReport,
    check_same_layout,
    copy_by_driver,
    copy_into,
    copy_on_host,
    empty,
    install_transfers,
    reinterpret,
    stream_on,
    tensors_overlap,
)
from tensormem.memories.mem import resource_of
from tensormem.spaces import LogicalMemorySpace, main, pinned

__all__ = ["TransferReport", "clone", "copy_into", "to"]

_HOST = -1  # what a driver of GPUs calls memory of the host
_STAGED_FROM = 64 << 10  # below this a driver's own way with pageable memory is as fast
_CHUNK = 4 << 20


def to(
    tensor: Tensor, space: LogicalMemorySpace | str, *, stream: StreamLike | None = None, copy: bool | None = None
) -> Tensor:
    """The values of `tensor` in `space`; see `Tensor.to`.

    >>> import tensormem as tm
    >>> a = tm.zeros(4)
    >>> to(a, "main") is a, to(a, "pinned").space
    (True, tm.pinned)
    """
    wanted = LogicalMemorySpace.parse(space)
    if tensor.space is wanted:
        return clone(tensor, stream=stream) if copy else tensor
    if copy is False:
        raise errors.CrossSpaceError(tensor.space, wanted, what="copy=False allows no move")
    made = empty(tensor.shape, tensor.dtype, mr=resource_of(wanted)) if tensor.size else _nothing(tensor, wanted)
    _transfer(made, tensor, stream)
    return made


def clone(tensor: Tensor, *, stream: StreamLike | None = None) -> Tensor:
    """A copy of `tensor` in the same space, row-major without gaps.

    >>> import tensormem as tm
    >>> clone(tm.zeros((2, 3)).T).strides
    (2, 1)
    """
    made = empty(tensor.shape, tensor.dtype, mr=_resource_beside(tensor)) if tensor.size else _nothing(tensor)
    _transfer(made, tensor, stream)
    return made


def _copy_into(to: Tensor, source: Tensor, stream: StreamLike | None) -> TransferReport:
    """What `copy_into` does when more has to be thought of than two layouts in main memory."""
    if not isinstance(source, Tensor):
        raise errors.InvalidArgument(f"the source of a copy is a tensor, not {type(source).__name__}; see tm.wrap")
    check_same_layout(to, source)
    if to.space is not source.space:
        raise errors.CrossSpaceError(to.space, source.space)
    if to.readonly:
        raise errors.InvalidArgument("the destination is read-only")
    if tensors_overlap(to, source):
        source = clone(source, stream=stream)
    return _transfer(to, source, stream)


def _nothing(tensor: Tensor, space: LogicalMemorySpace | None = None) -> Tensor:
    return empty(tensor.shape, tensor.dtype, space=tensor.space if space is None else space)


def _resource_beside(tensor: Tensor) -> DeviceMemoryResource:
    """The resource that made the tensor's own memory, or the one of its space."""
    owner = tensor.storage.owner
    return owner.mr if isinstance(owner, DeviceBlock) else resource_of(tensor.space)


def _transfer(to: Tensor, source: Tensor, stream: StreamLike | None) -> TransferReport:
    if to.storage.bracketed or source.storage.bracketed:
        return _transfer_mapped(to, source, stream)
    driver, route, why = _route(to, source, stream)
    report = TransferReport(to.nbytes, route, why, source.space, to.space)
    to.storage.transfer = report
    if to.nbytes == 0:
        report.took(0.0)
        return report
    work = stream_on(driver, stream)
    inline = driver.name == "host" and work.is_default
    _wait_for(source, work, inline)
    _wait_for(to, work, inline)
    uses = [(source, "read"), (to, "write")]
    for tensor, access in uses:
        _prepare(tensor, work, access)
    start = time.perf_counter()
    begun = None if inline else work.record()
    _run(to, source, driver, work, route)
    if begun is None:
        report.took(time.perf_counter() - start)
        return report
    for tensor, access in uses:
        _finish(tensor, work, access)
    end = work.record()
    report.runs_between(begun, end)
    to.storage.mark_pending(end)
    _keep(end, work, to.storage, source.storage)
    return report


def _transfer_mapped(to: Tensor, source: Tensor, stream: StreamLike | None) -> TransferReport:
    """Declares both accesses, copies, and waits: the brackets close behind the copy."""
    with to.map("w") as written, source.map("r") as read:
        left, right = written.as_tensor(), read.as_tensor()
        try:
            report = _transfer(left, right, stream)
            left.wait()
        finally:
            left.close()
            right.close()
    to.storage.transfer = report
    return report


def _route(to: Tensor, source: Tensor, stream: StreamLike | None) -> tuple[Driver, str, str]:
    host = drivers.host()
    far = [tensor.storage for tensor in (to, source) if not tensor.storage.host_accessible]
    if not far:
        if isinstance(stream, Stream) and stream.driver is not host:
            return stream.driver, "driver", "the stream is the GPU's, and both sides are memory it reaches"
        return host, "cpu", "the CPU reaches both sides"
    driver = far[0].driver
    if driver is None:
        raise errors.MemoryUnavailable(str(far[0].space), "its driver is not loaded, so nothing here can copy it")
    pageable = main in (to.space, source.space)
    if pageable and to.nbytes >= _STAGED_FROM and to.is_contiguous and source.is_contiguous:
        return driver, "staged", "pageable memory of this size goes through pinned memory in pieces"
    return driver, "driver", "the driver copies between these two itself"


def _wait_for(tensor: Tensor, work: Stream, inline: bool) -> None:
    """Let `work` come after the copy into `tensor` that is under way, if one is."""
    report = tensor.storage.transfer
    if tensor.ready:
        return
    end = report.end if isinstance(report, TransferReport) else None
    if inline or end is None or end.driver is not work.driver:
        tensor.wait()
    else:
        work.wait(end)


def _prepare(tensor: Tensor, work: Stream, access: str) -> None:
    owner = tensor.storage.owner
    if isinstance(owner, DeviceBlock) and owner.mr.driver is work.driver and owner.mr.supports_block_use_tracking:
        owner.mr.prepare_block_use(owner, work, access)


def _finish(tensor: Tensor, work: Stream, access: str) -> None:
    owner = tensor.storage.owner
    if isinstance(owner, DeviceBlock) and owner.mr.driver is work.driver and owner.mr.supports_block_use_tracking:
        owner.mr.finish_block_use(owner, work, access)


def _run(to: Tensor, source: Tensor, driver: Driver, work: Stream, route: str) -> None:
    if route == "cpu":
        copy_on_host(to, source, driver, work)
    elif route == "staged":
        _run_staged(to, source, driver, work)
    elif _by_driver(to, source, driver, work) < 0:
        _run_through_host(to, source, driver, work)


def _by_driver(to: Tensor, source: Tensor, driver: Driver, work: Stream) -> int:
    return copy_by_driver(to, source, driver, work, to_device=_device(to), source_device=_device(source))


def _device(tensor: Tensor) -> int:
    return _HOST if tensor.storage.host_accessible else tensor.space.device_id


def _run_staged(to: Tensor, source: Tensor, driver: Driver, work: Stream) -> None:
    """Two pieces of pinned memory in turn: while the driver copies one, the CPU copies the other."""
    left, right = reinterpret(to, "uint8"), reinterpret(source, "uint8")
    pieces = [empty(min(_CHUNK, to.nbytes), "uint8", mr=resource_of(pinned)) for _ in range(2)]
    upload = source.storage.host_accessible
    free: list[Event | None] = [None, None]
    landed: tuple[Tensor, Tensor, Event] | None = None
    for turn, start in enumerate(range(0, to.nbytes, _CHUNK)):
        end = min(start + _CHUNK, to.nbytes)
        piece = pieces[turn % 2][: end - start]
        before = free[turn % 2]
        if before is not None:
            before.synchronize()
        if upload:
            copy_on_host(piece, right[start:end], drivers.host())
            _by_driver(left[start:end], piece, driver, work)
            free[turn % 2] = work.record()
            continue
        _by_driver(piece, right[start:end], driver, work)
        if landed is not None:
            _unload(*landed)
        landed = left[start:end], piece, work.record()
    if landed is not None:
        _unload(*landed)
    for event in free:
        if event is not None:
            event.synchronize()


def _unload(to: Tensor, piece: Tensor, arrived: Event) -> None:
    arrived.synchronize()
    copy_on_host(to, piece, drivers.host())


def _run_through_host(to: Tensor, source: Tensor, driver: Driver, work: Stream) -> None:
    """No box describes this pair of layouts: the CPU rearranges images of both in pinned memory."""
    left, right = _image(to, driver, work), _image(source, driver, work)
    work.synchronize()
    copy_on_host(left, right, drivers.host())
    if left is not to:
        _by_driver(_bytes_of(to), _bytes_of(left), driver, work)
        work.synchronize()


def _image(tensor: Tensor, driver: Driver, work: Stream) -> Tensor:
    if tensor.storage.host_accessible:
        return tensor
    whole = _bytes_of(tensor)
    kept = empty(whole.nbytes, "uint8", mr=resource_of(pinned))
    _by_driver(kept, whole, driver, work)
    return Tensor(kept.storage, tensor.dtype, tensor.shape, strides=tensor.strides, offset=tensor.offset)


def _bytes_of(tensor: Tensor) -> Tensor:
    return Tensor(tensor.storage, "uint8", (tensor.storage.nbytes,))


# ---- What has to stay alive until a stream has passed ----

_lock = threading.Lock()
_numbers = count()
_in_flight: dict[int, tuple[Event, tuple[object, ...]]] = {}


def _keep(end: Event, work: Stream, *kept: object) -> None:
    number = next(_numbers)
    with _lock:
        _in_flight[number] = end, kept
        over = [each for each, (event, _) in _in_flight.items() if event.done]
        dropped = [_in_flight.pop(each) for each in over]
    del dropped
    # The host's own streams can say when. What a GPU's driver calls must not call the driver: that is looked at later.
    if work.driver.name == "host":
        work.launch(_in_flight.pop, number, None)


install_transfers(_copy_into)
