"""Owns: `pbo`, memory of OpenGL's pixel buffer objects: which context makes it, and whether it keeps its address.

Must not know: tensors, and how OpenGL is called; that is `tensormem.gl`.
"""

from __future__ import annotations

from functools import partial
from typing import SupportsIndex

from tensormem import drivers, errors
from tensormem._core import Storage, StreamLike, allocate_of_kind
from tensormem.gl import GlContext, PixelBuffer
from tensormem.gl import why_not as why_no_opengl
from tensormem.memories.kinds import TensorMemory
from tensormem.mr import DeviceMemoryResource, get_kind_resource
from tensormem.public_functions import explain_misspellings
from tensormem.spaces import LogicalMemorySpace, main

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.spaces.words import SpaceLike

__all__ = ["allocate", "make_storage", "why_not"]

_MOST = 2**63 - 1


def allocate(
    nbytes: SupportsIndex,
    space: SpaceLike = main,
    *,
    context: GlContext | None = None,
    persistent: bool | None = None,
    usage: str = "both",
    alignment: SupportsIndex | None = None,
    mr: DeviceMemoryResource | None = None,
    stream: StreamLike | None = None,
    tag: str | None = None,
) -> Storage:
    """A storage over a pixel buffer of `context`, or of the one that is used where none is named.

    `persistent` ones stay mapped and have an address; by default they are, where OpenGL offers it. The others have one
    map at a time (`PboMapped`) and an address only meanwhile. `usage` tells OpenGL what to prepare for: "upload",
    "download" or "both". The memory goes back after the work queued on `stream`; `tag` is a label for debugging as
    well. It is counted by `mr`, or by the resource that serves this kind (`tm.mr.get_kind_resource`).

    >>> if why_not() is None:
    ...     storage = allocate(4096, persistent=False)
    ...     with storage.map("w") as mapped:
    ...         memoryview(mapped)[:4] = b"abcd"
    ...     with storage.map("r") as mapped:
    ...         assert bytes(memoryview(mapped)[:4]) == b"abcd"
    """
    wanted = nbytes.__index__()
    if not 1 <= wanted <= _MOST:
        raise errors.InvalidSize(wanted)
    if space is not main and (meant := LogicalMemorySpace.parse(space)) is not main:
        raise errors.MemoryUnavailable("pbo", f"pixel buffers are reached from main memory, and not from {meant}")
    made_by = _default_context() if context is None else context
    staying = made_by.storage_call is not None if persistent is None else persistent
    if staying and made_by.storage_call is None:
        raise errors.MemoryUnavailable("pbo", f"{made_by!r} has no buffers that stay mapped; use persistent=False")
    _check_alignment(alignment, made_by)
    make = partial(make_storage, context=made_by, persistent=staying, usage=usage, label=tag or "", used_bytes=wanted)
    resource = get_kind_resource("pbo") if mr is None else mr
    kept = alignment if staying else None
    storage: Storage = allocate_of_kind(resource, wanted, make, stream=stream, alignment=kept, tag=tag)
    return storage


def make_storage(
    nbytes: int,
    *,
    context: GlContext | None = None,
    persistent: bool = True,
    usage: str = "both",
    label: str = "",
    used_bytes: int | None = None,
) -> Storage:
    """A storage over a new pixel buffer that nothing counts yet; over its first `used_bytes`, if that is said."""
    made_by = _default_context() if context is None else context
    buffer = PixelBuffer(nbytes, made_by, persistent=persistent, usage=usage, label=label)
    return Storage(
        buffer.address,
        nbytes if used_bytes is None else used_bytes,
        owner=buffer,
        space=main,
        memory=TensorMemory.PBO,
        device=(1, 0),
        driver=drivers.host(),
        host_accessible=persistent,
    )


def why_not() -> str | None:
    """Why there is no memory of this kind here; None if there is.

    >>> why_not() is None or isinstance(why_not(), str)
    True
    """
    return why_no_opengl()


def _check_alignment(alignment: SupportsIndex | None, context: GlContext) -> None:
    wanted = 1 if alignment is None else alignment.__index__()
    if not (0 < wanted <= context.map_alignment and wanted & (wanted - 1) == 0):
        raise errors.InvalidAlignment(
            alignment, what=f"maps of {context!r} begin at multiples of {context.map_alignment}"
        )


def _default_context() -> GlContext:
    try:
        return GlContext.default()
    except errors.DriverUnavailable as missing:
        raise errors.MemoryUnavailable("pbo", missing.reason) from None
    except errors.DriverError as failed:
        raise errors.MemoryUnavailable("pbo", str(failed)) from failed


explain_misspellings(globals())
