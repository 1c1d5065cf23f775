"""Owns: a tensor as a short header and its bytes, the form in which it leaves the process; every carrier uses it.

The header is a mark, the version of the format and a description in JSON. It is checked before anything is made: a
newer format or a description that cannot be right is refused. Must not know: who carries the two.
"""

from __future__ import annotations

import json
import os
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from tensormem import errors
from tensormem._core import Storage, Tensor, reinterpret
from tensormem.config import MissingSpace, get_config
from tensormem.dtypes import DType
from tensormem.spaces import LogicalMemorySpace, main
from tensormem.tensor.making import from_buffer, storage_over

__all__ = ["FORMAT_VERSION", "WireFacts", "pack", "parse_header", "tensor_of", "unpack"]

FORMAT_VERSION = 1
_MARK = b"tm"
_PREFIX = struct.Struct("<2sH")
_MAX_HEADER_BYTES = 16 << 10
_KNOWN_HEADERS = 256


class WireFacts(NamedTuple):
    """What a header says. `strides` are None where the elements lie row-major.

    >>> parse_header(pack(from_buffer(b"abc"))[0]).shape
    (3,)
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    readonly: bool
    space: LogicalMemorySpace
    host: str


def pack(tensor: Tensor) -> tuple[bytes, Tensor]:
    """The header of a tensor, and its bytes as a tensor in main memory: its own memory, without a copy, if it can be.

    A layout without gaps is kept, whatever the order of its dimensions; one with gaps is sent without them. What the
    CPU cannot reach is copied to main memory first, through pinned memory piece by piece.

    >>> import tensormem as tm
    >>> tensor = tm.zeros((2, 3)).T
    >>> header, data = pack(tensor)
    >>> data.nbytes, data.aliases(tensor)
    (24, True)
    """
    if not tensor.size:
        return describe(tensor, None), from_buffer(b"")
    near = tensor if tensor.storage.mappable else tensor.to(main).wait()
    if near.is_contiguous:
        return describe(tensor, None), reinterpret(near.wait(), "uint8")
    order = _dense_order(near)
    if order is None:
        return describe(tensor, None), reinterpret(near.contiguous().wait(), "uint8")
    return describe(tensor, near.strides), reinterpret(near.permute(*order).wait(), "uint8")


def describe(tensor: Tensor, strides: tuple[int, ...] | None) -> bytes:
    """The header that says `strides` of a tensor."""
    return _header(tensor.dtype, tensor.shape, strides, tensor.readonly, tensor.space)


@lru_cache(_KNOWN_HEADERS)  # the same object for the same facts: a pickle has it once
def _header(
    element: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None, readonly: bool, space: LogicalMemorySpace
) -> bytes:
    said: dict[str, Any] = {
        "dtype": [element.code, element.bits, element.lanes],
        "shape": shape,
        "readonly": readonly,
        "space": str(space),
        "host": os.uname().nodename,
    }
    if strides is not None:
        said["strides"] = strides
    return _PREFIX.pack(_MARK, FORMAT_VERSION) + json.dumps(said, separators=(",", ":")).encode()


def _dense_order(tensor: Tensor) -> tuple[int, ...] | None:
    """The order of the dimensions in which the elements lie one after another; None if there are gaps."""
    strides = tensor.strides
    if tensor.dtype.is_subbyte or min(strides) < 0:
        return None
    order = tuple(sorted(range(tensor.ndim), key=lambda dim: (-strides[dim], -tensor.shape[dim])))
    return order if tensor.permute(*order).is_contiguous else None


def parse_header(header: bytes | bytearray | memoryview) -> WireFacts:
    """What a header says; `VersionSkew` for another format, `MalformedMessage` for what cannot be believed."""
    return _parsed(bytes(header[: _MAX_HEADER_BYTES + 1]))


@lru_cache(_KNOWN_HEADERS)
def _parsed(raw: bytes) -> WireFacts:
    if len(raw) < _PREFIX.size or raw[:2] != _MARK or len(raw) > _MAX_HEADER_BYTES:
        raise errors.MalformedMessage(0, what="this is no header of a tensor")
    version = _PREFIX.unpack_from(raw)[1]
    if version != FORMAT_VERSION:
        raise errors.VersionSkew(version, FORMAT_VERSION)
    try:
        return _facts_of(json.loads(raw[_PREFIX.size :]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, errors.TensormemError) as error:
        raise errors.MalformedMessage(_PREFIX.size, what=f"{type(error).__name__}: {error!s:.200}") from None


def _facts_of(said: dict[str, Any]) -> WireFacts:
    strides = said.get("strides")
    readonly, host, (code, bits, lanes) = said["readonly"], said["host"], said["dtype"]
    if type(readonly) is not bool or type(host) is not str:
        raise TypeError("a fact is of another type")
    facts = WireFacts(
        DType(_whole(code), _whole(bits), _whole(lanes)),
        tuple(map(_whole, said["shape"])),
        None if strides is None else tuple(map(_whole, strides)),
        readonly,
        LogicalMemorySpace.parse(said["space"]),
        host,
    )
    if min(facts.shape, default=0) < 0 or min(facts.strides or (0,)) < 0:
        raise ValueError("a length or a stride is negative")
    return facts


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no whole number")
    return value


def unpack(header: bytes | bytearray | memoryview, data: Any) -> Tensor:
    """The tensor over the bytes that arrived, in the space it came from: read-only if it was, or if the bytes are.

    >>> import tensormem as tm
    >>> header, data = pack(tm.full((2, 2), 7, "int8"))
    >>> unpack(header, bytearray(data)).tolist()
    [[7, 7], [7, 7]]
    """
    return tensor_of(parse_header(header), storage_over(data))


def tensor_of(facts: WireFacts, storage: Storage) -> Tensor:
    """The same over a storage in main memory that has the bytes."""
    tensor = Tensor(storage, facts.dtype, facts.shape, strides=facts.strides, readonly=facts.readonly or None)
    if facts.space is main:
        return tensor
    arrived = _to_its_space(tensor, facts)
    return arrived.as_readonly() if facts.readonly else arrived


def _to_its_space(tensor: Tensor, facts: WireFacts) -> Tensor:
    try:
        return tensor.to(facts.space).wait()
    except (errors.MemoryUnavailable, errors.DriverUnavailable) as missing:
        here = os.uname().nodename
        if get_config().missing_space is MissingSpace.MAIN:
            tensor.storage.reason = f"it came from {facts.space} of host {facts.host}, which host {here} has not"
            return tensor
        reason = (
            f"a tensor arrived from {facts.space} of host {facts.host}, and host {here} has no such space "
            f"({missing.reason}); TENSORMEM_MISSING_SPACE=main on {here} takes it into main memory instead"
        )
        raise errors.MemoryUnavailable(str(facts.space), reason) from None
