"""Owns: `shm`, memory that other processes can hold: a nameless file in memory, sealed against shrinking.

There is no name to guess and none to leave behind: the memory goes with the last process that holds it. It is shared by
descriptor (`Tensor.clone_fd`, `tm.from_fd`), through `multiprocessing`, or by fork. Must not know: tensors.
"""

from __future__ import annotations

from typing import SupportsIndex

from tensormem import errors
from tensormem._core import Storage, StreamLike, allocate_shared_memory, attach_shared_memory, why_no_shared_memory
from tensormem.memories import processes
from tensormem.memories.kinds import TensorMemory
from tensormem.mr import DeviceMemoryResource, get_kind_resource
from tensormem.public_functions import explain_misspellings
from tensormem.spaces import LogicalMemorySpace, main

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.spaces.words import SpaceLike

__all__ = ["allocate", "from_fd", "why_not"]

_PEERS = ("rw", "r")


def allocate(
    nbytes: SupportsIndex | str,
    space: SpaceLike = main,
    *,
    peers: str = "rw",
    huge_pages: bool = False,
    mr: DeviceMemoryResource | None = None,
    tag: str | None = None,
    stream: StreamLike | None = None,
    alignment: SupportsIndex | None = None,
) -> Storage:
    """A storage of new shared memory, zeroed; pages are there when they are touched.

    With `peers="r"` the kernel never lets anybody but this storage write, whatever a peer tries. With `huge_pages`, the
    memory is of 2 MiB pages, or it is refused. The memory is there at once, and goes back after the work queued on
    `stream`. It is counted by `mr`, or by the resource that serves this kind (`tm.mr.get_kind_resource`).

    >>> allocate(64)
    <Storage ...: 64 bytes of shm in main, 0x...>
    """
    if space is not main or peers != "rw":
        _check(LogicalMemorySpace.parse(space), peers)
    try:
        return allocate_shared_memory(
            get_kind_resource("shm") if mr is None else mr,
            nbytes,
            main,
            TensorMemory.SHM,
            tag=tag,
            huge_pages=huge_pages,
            readers_only=peers == "r",
            stream=stream,
            alignment=alignment,
        )
    except errors.NotSupported as missing:
        raise errors.MemoryUnavailable("shm", missing.what) from None


def from_fd(
    fd: SupportsIndex,
    nbytes: SupportsIndex | None = None,
    readonly: bool = False,
    *,
    trust: bool = False,
    tag: str | None = None,
) -> Storage:
    """A storage of the shared memory behind a descriptor, which stays the caller's; all of it unless `nbytes` says.

    Refused: what is no shared memory, is smaller, may only be read unless `readonly`, or is not sealed against
    shrinking, since whoever holds it could then crash us. With `trust` that last one is sealed here if it can be.

    >>> import os
    >>> mine = allocate(64)
    >>> fd = mine.owner.export_fd()
    >>> from_fd(fd, readonly=True).aliases(mine)
    True
    >>> os.close(fd)
    """
    return attach_shared_memory(
        get_kind_resource("shm"),
        fd,
        nbytes,
        main,
        TensorMemory.SHM,
        tag=tag,
        readonly=bool(readonly),
        trust=bool(trust),
    )


def why_not() -> str | None:
    """Why there is no shared memory here; None where there is.

    >>> why_not() is None
    True
    """
    return why_no_shared_memory()


def _check(space: LogicalMemorySpace, peers: str) -> None:
    if space is not main:
        raise errors.MemoryUnavailable("shm", f"processes share main memory, not {space}")
    if peers not in _PEERS:
        raise errors.InvalidArgument(f"peers may 'rw' or 'r', not {peers!r:.40}")


processes.install()

explain_misspellings(globals())
