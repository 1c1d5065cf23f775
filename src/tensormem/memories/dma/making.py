"""Owns: storages of kind `dma`: allocated from a heap or by udmabuf, or imported by descriptor.

An explicit choice of a heap is kept or refused; without one, the first that works is taken and the reason says which.
Must not know: tensors.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
from functools import partial
from operator import index
from typing import SupportsIndex

from tensormem import errors
from tensormem._core import (
    Storage,
    StreamLike,
    adopt_storage,
    allocate_of_kind,
    claim_identity,
    drop_identity,
    host_driver,
    share_block,
)
from tensormem.memories import processes
from tensormem.memories.dma import heaps, ioctls, names, udmabuf
from tensormem.memories.dma.availability import why_not
from tensormem.memories.dma.buffer import DmaBuffer
from tensormem.memories.dma.descriptor import Descriptor
from tensormem.memories.kinds import TensorMemory
from tensormem.mr import DeviceMemoryResource, get_kind_resource
from tensormem.spaces import LogicalMemorySpace, main
from tensormem.units import parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.spaces.words import SpaceLike

__all__ = ["allocate", "from_fd", "make_storage", "why_not"]

UDMABUF = "udmabuf"
"""What `heap` is called to ask for memory of udmabuf."""


def allocate(
    nbytes: SupportsIndex | str,
    space: SpaceLike = main,
    *,
    heap: str | None = None,
    name: str | None = None,
    alignment: SupportsIndex | None = None,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    tag: str | None = None,
) -> Storage:
    """A storage of a new DMA-BUF, zeroed. `heap` is one of `list_heaps()` or "udmabuf"; `name` is for debugging.

    Without a name it is called by its `tag`, as far as that goes. It goes back after the work queued on `stream`.
    It is counted by `mr`, or by the resource that serves this kind (`tm.mr.get_kind_resource`).

    >>> if why_not() is None:
    ...     assert allocate(64).nbytes == 64
    """
    size = parse_size(nbytes)
    if size == 0:
        raise errors.InvalidSize(nbytes, what="a DMA-BUF has at least one byte")
    if space is not main and (meant := LogicalMemorySpace.parse(space)) is not main:
        raise errors.MemoryUnavailable("dma", f"a DMA-BUF is in main memory, and {meant} was asked for")
    _check_alignment(alignment)
    if name is not None:
        names.check_name(name)
    make = partial(make_storage, heap=heap, name=name or names.shortened(tag), used_bytes=size)
    resource = get_kind_resource("dma") if mr is None else mr
    storage: Storage = allocate_of_kind(resource, size, make, stream=stream, alignment=alignment, tag=tag)
    if storage.block is not None:
        share_block(
            storage.owner.identity, storage.block
        )  # who maps it once more, by descriptor, does not count it again
    return storage


def make_storage(
    nbytes: int, *, heap: str | None = None, name: str | None = None, used_bytes: int | None = None
) -> Storage:
    """A storage of a new DMA-BUF of `nbytes` that nothing counts yet; of its first `used_bytes`, if that is said."""
    fd, reason = _new_descriptor(nbytes, heap)
    return _storage(DmaBuffer(fd), nbytes if used_bytes is None else used_bytes, reason, name)


def from_fd(
    fd: SupportsIndex, nbytes: SupportsIndex | str | None = None, readonly: bool = False, *, tag: str | None = None
) -> Storage:
    """A storage over a DMA-BUF that somebody else made: a camera, a video decoder, another process. No copy.

    A duplicate of the descriptor is taken; the caller keeps his. The first `nbytes` of it are used, or all. What is no
    DMA-BUF, too small, or may only be read without `readonly=True`, is refused.
    """
    given = Descriptor.inspect(fd)
    size = None if nbytes is None else parse_size(nbytes)
    try:
        mine = fcntl.fcntl(given.fd, fcntl.F_DUPFD_CLOEXEC, 0)
    except OSError as refused:
        raise ioctls.failure(refused, f"dup of descriptor {given.fd}") from None
    # It is the duplicate whose size counts: the number may be another file's by now.
    buffer = DmaBuffer(mine, readonly=readonly)
    wanted = buffer.nbytes if size is None else size
    if not 0 < wanted <= buffer.nbytes:
        buffer.release()
        raise errors.InvalidSize(nbytes, what=f"the DMA-BUF has {buffer.nbytes} bytes")
    file = buffer.identity
    storage: Storage = adopt_storage(
        get_kind_resource("dma"), _storage(buffer, wanted, "imported by descriptor"), file=file, tag=tag
    )
    return storage


def _check_alignment(alignment: SupportsIndex | None) -> None:
    wanted = 1 if alignment is None else index(alignment)
    if not (0 < wanted <= mmap.PAGESIZE and wanted & (wanted - 1) == 0):
        raise errors.InvalidAlignment(alignment, what=f"a DMA-BUF begins with a page, of {mmap.PAGESIZE} bytes")


def _storage(buffer: DmaBuffer, nbytes: int, reason: str, name: str | None = None) -> Storage:
    try:
        if name is not None:
            buffer.set_name(name)
        identity = claim_identity(buffer.identity)
        buffer.when_released = partial(drop_identity, buffer.identity)
        return Storage(
            buffer.address,
            nbytes,
            owner=buffer,
            space=main,
            memory=TensorMemory.DMA,
            device=(1, 0),
            driver=host_driver(),
            readonly=buffer.readonly,
            id=identity,
            reason=reason,
        )
    except BaseException:
        buffer.release()
        raise


def _new_descriptor(nbytes: int, heap: str | None) -> tuple[int, str]:
    if heap is not None:
        return _from(heap, nbytes), f"{_title(heap)} was asked for"
    refused: list[str] = []
    for choice in [*heaps.preferred_heaps(), UDMABUF]:
        try:
            return _from(choice, nbytes), "; ".join([f"{_title(choice)} is the first that works here", *refused])
        except errors.MemoryUnavailable as missing:
            refused.append(missing.reason)
        except errors.OutOfMemory as full:
            refused.append(str(full))
        except errors.DriverError as failed:
            if failed.code != errno.ENOMEM:  # a heap may be full and the next one not; all else is the same there
                raise
            refused.append(str(failed))
    raise errors.MemoryUnavailable("dma", why_not() or "; ".join(refused))


def _from(heap: str, nbytes: int) -> int:
    return udmabuf.allocate_udmabuf(nbytes) if heap == UDMABUF else heaps.allocate_from_heap(heap, nbytes)


def _title(heap: str) -> str:
    return heap if heap == UDMABUF else f"heap {heap}"


processes.install()
