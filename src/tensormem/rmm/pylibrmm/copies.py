"""Owns: copies between plain addresses and bytes of Python, on a stream, as RMM's users call them.

A copy from or to bytes of Python waits for its stream, so that the bytes may be used or changed at once.
Must not know: who owns the memory.
"""

from typing import Any

from tensormem.rmm._cuda.gpu import driver_of, getDevice
from tensormem.rmm.pylibrmm.stream import DEFAULT_STREAM, Stream
from tensormem.rmm.pylibrmm.utils import as_stream
from tensormem.tensor import from_buffer

__all__ = ["copy_device_to_ptr", "copy_host_to_ptr", "copy_ptr_to_host", "plain_bytes"]


def copy_ptr_to_host(db: int, hb: Any, stream: Stream = DEFAULT_STREAM) -> None:
    """Fill the bytes of `hb` from an address."""
    stream = as_stream(stream)
    target = plain_bytes(hb, "hb")
    if target.readonly:
        raise ValueError("Argument `hb` may only be read")
    _copy_and_wait(from_buffer(target).ptr if target.nbytes else 0, db, target.nbytes, stream)


def copy_host_to_ptr(hb: Any, db: int, stream: Stream = DEFAULT_STREAM) -> None:
    """Copy the bytes of `hb` to an address."""
    stream = as_stream(stream)
    source = plain_bytes(hb, "hb")
    _copy_and_wait(db, from_buffer(source).ptr if source.nbytes else 0, source.nbytes, stream)


def copy_device_to_ptr(d_src: int, d_dst: int, count: int, stream: Stream = DEFAULT_STREAM) -> None:
    """Copy `count` bytes from an address to another, in the order of the stream."""
    stream = as_stream(stream)
    if count:
        driver = driver_of(getDevice())
        driver.copy(d_dst, d_src, count, stream.on(driver))


def _copy_and_wait(destination: int, source: int, count: int, stream: Stream) -> None:
    copy_device_to_ptr(source, destination, count, stream)
    if count:
        stream.synchronize()


def plain_bytes(source: Any, name: str) -> memoryview:
    """A view of bytes in one row, which is all that RMM takes; other things are refused as there."""
    if source is None:
        raise TypeError(f"Argument '{name}' has incorrect type (expected bytes-like, got NoneType)")
    view = memoryview(source)
    if view.format != "B" or view.ndim != 1 or not view.c_contiguous:
        raise ValueError(
            f"Argument '{name}' has {view.ndim} dimensions of {view.format!r}; bytes (B) in one row are needed"
        )
    return view
