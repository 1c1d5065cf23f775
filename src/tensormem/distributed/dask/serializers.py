"""Owns: tensors as Dask's headers and frames. The frames are the tensor's own memory: nothing is copied to send it.

Dask splits what is large and joins it on arrival, in memory that it made once; the tensor is over that memory, which
counts in the budget of a worker that has one. Where a delivery is under way (handover), memory with a descriptor goes
by it, and no bytes do. Must not know: sockets.
"""

from __future__ import annotations

import os
from typing import Any

from tensormem import errors
from tensormem._core import Storage, Tensor
from tensormem.distributed.dask import handover
from tensormem.distributed.process_stack import installed
from tensormem.spaces import main
from tensormem.tensor.making import from_buffer, from_pointer
from tensormem.tensor.wire import WireFacts, pack, parse_header, tensor_of

__all__ = ["deserialize", "family_dumps", "serialize"]


def serialize(tensor: Tensor, context: Any = None) -> tuple[dict[str, Any], list[Any]]:
    """The header and the frames of a tensor. `context` is Dask's: None when it goes to a disk.

    >>> import tensormem as tm
    >>> header, frames = serialize(tm.full(3, 7, "int8"))
    >>> deserialize(header, [bytearray(frames[0])]).tolist()
    [7, 7, 7]
    """
    token = None if context is None else handover.bring(tensor)
    if token is not None:
        return {"brought": token, "worker": str(os.getpid()), "node": os.uname().nodename}, []
    header, data = pack(tensor)
    return {"tensor": header}, [memoryview(data)]


def deserialize(header: dict[str, Any], frames: list[Any]) -> Tensor:
    """The tensor that a header and frames describe; writable if it was."""
    if "brought" in header:
        return _collect(header)
    if "tensor" not in header:
        raise errors.MalformedMessage(0, what=f"no tensor of a known format, but {sorted(map(str, header))!r:.200}")
    facts = parse_header(header["tensor"])
    return tensor_of(facts, _counted(_writable_if(not facts.readonly, _joined(frames)), facts))


def _collect(header: dict[str, Any]) -> Tensor:
    tensor = handover.collect(header["brought"])
    if tensor is None:
        # Dask takes this for a connection that broke, and gets the data elsewhere or makes it again.
        raise errors.WorkerDied(header["worker"], header["node"], what="it went before the memory was collected")
    return tensor


def _joined(frames: list[Any]) -> Any:
    if len(frames) == 1:
        return frames[0]
    # Dask gives frames back as they were given to it; several come only from a sender of another kind.
    return bytearray().join(frames)


def _writable_if(wanted: bool, frame: Any) -> Any:
    """Bytes that were compressed may only be read; who made a tensor that can be written gets one that can."""
    return bytearray(frame) if wanted and memoryview(frame).readonly else frame


def _counted(frame: Any, facts: WireFacts) -> Storage:
    """The memory of a frame; it counts in this worker's budget, if it has one, as long as the storage lives."""
    stack, flat = installed(), from_buffer(frame, "uint8")
    if stack is None or not flat.nbytes or facts.space is not main:  # what goes to another space is let go there
        return flat.storage
    owner = stack.received.take_in(flat, flat.nbytes)
    return from_pointer(flat.ptr, flat.nbytes, owner=owner, readonly=flat.readonly).storage


def family_dumps(value: Any, context: Any = None) -> tuple[dict[str, Any], list[Any]]:
    """The same as a family of its own, for `Client(serializers=["tensormem", ...])`; other types are refused."""
    if type(value) is not Tensor:
        raise NotImplementedError(f"{type(value).__name__} is no tensor")
    return serialize(value, context)
