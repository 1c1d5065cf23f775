"""Owns: the bytes by which a channel describes memory, as Python sees them. Checked in native code, both ways.

Must not know: sockets and descriptors.
"""
from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t

from tensormem._core.failures cimport check
from tensormem._core.native_share cimport (
    MessageBytes,
    MessageKind,
    NativeMessage,
    descriptor_count,
    format_message,
    kMaxMessageBytes,
    kMessageReadOnly,
    parse_message,
)
from tensormem._core.tensor cimport Tensor, element_from_code

from tensormem import errors

MAX_MESSAGE_BYTES = kMaxMessageBytes


class MessageFacts(NamedTuple):
    """What a message says; of a ring only `descriptors`, `readonly` and `capacity`."""

    is_ring: bool
    descriptors: int
    readonly: bool
    dtype: object
    shape: tuple
    strides: tuple
    offset: int
    capacity: int


cdef bytes _bytes_of(const NativeMessage& message):
    cdef MessageBytes raw
    cdef size_t count = 0
    check(format_message(message, &raw, &count))
    return raw.data()[:count]


def describe_tensor(Tensor tensor not None, bint readonly):
    """The message that a tensor of shared memory travels with."""
    cdef NativeMessage message
    if tensor.storage is None:
        raise errors.InvalidArgument("this tensor was never made")
    tensor.storage.check_open()
    if tensor.element.width.bits % 8 and not tensor.element.width.packed:
        raise errors.NotSupported("sending elements of less than a byte that have a byte each")
    message.kind = MessageKind.tensor
    message.flags = kMessageReadOnly if readonly else 0
    message.dtype.code, message.dtype.bits = tensor.element.code, tensor.element.bits
    message.dtype.lanes = tensor.element.lanes
    message.ndim = tensor.rank
    message.offset = tensor.first - tensor.storage.address
    message.capacity = tensor.storage.capacity
    for i in range(tensor.rank):
        message.shape[i] = tensor.dims[i]
        message.strides[i] = tensor.dims[tensor.rank + i]
    return _bytes_of(message)


def describe_ring(capacity, bint readonly):
    """The message that a frame ring of `capacity` bytes travels with."""
    cdef NativeMessage message
    message.kind = MessageKind.ring
    message.flags = kMessageReadOnly if readonly else 0
    message.capacity = capacity
    return _bytes_of(message)


def parse(data):
    """What a message says; `MalformedMessage` when it cannot be believed."""
    cdef NativeMessage message
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        check(parse_message(<const uint8_t*>view.buf, <size_t>view.len, &message))
    finally:
        PyBuffer_Release(&view)
    ring = message.kind == MessageKind.ring
    dtype = None
    if not ring:
        dtype = element_from_code(message.dtype.code, message.dtype.bits, message.dtype.lanes, False).dtype
    return MessageFacts(
        ring,
        descriptor_count(message.kind),
        (message.flags & kMessageReadOnly) != 0,
        dtype,
        tuple([message.shape[i] for i in range(message.ndim)]),
        tuple([message.strides[i] for i in range(message.ndim)]),
        message.offset,
        message.capacity,
    )
