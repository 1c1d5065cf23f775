"""Owns: `DeviceBuffer`, bytes of a resource that grow and go back by themselves. Must not know: who reads the bytes."""

import sys
from typing import Any

from tensormem import errors
from tensormem.interop.library import load
from tensormem.mr import DeviceBlock
from tensormem.public_functions import explain_misspellings
from tensormem.rmm._cuda.gpu import getDevice
from tensormem.rmm.pylibrmm.copies import copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host, plain_bytes
from tensormem.rmm.pylibrmm.memory_resource import DeviceMemoryResource, get_current_device_resource
from tensormem.rmm.pylibrmm.memory_resource.device_memory_resource import allocate_block
from tensormem.rmm.pylibrmm.memory_resource.per_device import resource_in_force
from tensormem.rmm.pylibrmm.stream import DEFAULT_STREAM, Stream
from tensormem.rmm.pylibrmm.utils import as_stream

__all__ = ["DeviceBuffer", "copy_device_to_ptr", "copy_host_to_ptr", "copy_ptr_to_host", "to_device"]


class DeviceBuffer:
    """`size` bytes of a resource, the current one unless `mr` is given, copied from the address `ptr` if it is not 0.

    The memory goes back on `stream` when the buffer is dropped. It carries the tag in force (`tm.tag`), and without an
    `mr` the resource and the limits in force (`tm.use_resource`, `tm.limit`) serve and count it.

    >>> buffer = DeviceBuffer.to_device(b"abc")
    >>> buffer.size, buffer.tobytes(), buffer.copy().ptr != buffer.ptr
    (3, b'abc', True)
    """

    mr: DeviceMemoryResource
    stream: Stream
    _size: int = 0
    _block: DeviceBlock | None = None

    def __init__(
        self,
        *,
        ptr: int = 0,
        size: int = 0,
        stream: Stream = DEFAULT_STREAM,
        mr: DeviceMemoryResource | None = None,
    ) -> None:
        self.stream = as_stream(stream)
        self.mr = get_current_device_resource() if mr is None else mr
        if not isinstance(self.mr, DeviceMemoryResource):
            raise TypeError(f"mr is a resource of rmm.mr, not {type(mr).__name__}")
        self._named = mr is not None
        if size < 0:
            raise errors.InvalidSize(size, what="it is negative")
        self._block = self._allocate(size, self.stream)
        self._size = size
        if ptr and size:
            copy_device_to_ptr(ptr, self.ptr, size, self.stream)
            if self.stream.is_default():
                self.stream.synchronize()

    def __del__(self) -> None:
        block, self._block = self._block, None
        # At exit the block goes back by itself.
        if block is not None and not sys.is_finalizing():
            self.mr.give_back(block, self.stream)

    def _allocate(self, nbytes: int, stream: Stream) -> DeviceBlock | None:
        if nbytes == 0:
            return None
        resource = self.mr.resource if self._named else resource_in_force(self.mr)
        return allocate_block(resource, nbytes, stream)

    def __len__(self) -> int:
        return self._size

    def __sizeof__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self.tobytes()

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return self._size

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._size

    @property
    def ptr(self) -> int:
        """The address of the bytes; 0 when there are none."""
        return 0 if self._block is None else self._block.ptr

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.ptr, False), "shape": (self._size,), "strides": None, "typestr": "|u1", "version": 0}

    def __reduce__(self) -> tuple[Any, ...]:
        return to_device, (self.copy_to_host(),)

    def __repr__(self) -> str:
        return f"<DeviceBuffer of {self._size} bytes at {self.ptr:#x}>"

    def prefetch(self, device: int | None = None, stream: Stream | None = None) -> None:
        """Bring managed memory to a device (the current one; -1: the host); other memory stays where it is."""
        block = self._block
        if block is None or not block.mr.is_managed:
            return
        driver = block.mr.driver
        where = getDevice() if device is None else device
        driver.prefetch(block.ptr, self._size, where, (self.stream if stream is None else stream).on(driver))

    def copy(self) -> "DeviceBuffer":
        """A new buffer with the same bytes, of the same resource."""
        return DeviceBuffer(ptr=self.ptr, size=self._size, stream=self.stream, mr=self.mr)

    def __copy__(self) -> "DeviceBuffer":
        return self.copy()

    @staticmethod
    def to_device(b: Any, stream: Stream = DEFAULT_STREAM) -> "DeviceBuffer":
        """A new buffer with a copy of bytes of Python."""
        return to_device(b, stream)

    def copy_to_host(self, ary: Any = None, stream: Stream = DEFAULT_STREAM) -> Any:
        """Copy the bytes into `ary`, or into a new NumPy array; gives the one that was filled."""
        stream = as_stream(stream)
        if ary is None:
            ary = load("numpy", "numpy").empty(self._size, "u1")
        view = plain_bytes(ary, "ary")
        if view.nbytes < self._size:
            raise ValueError(f"Argument `ary` is too small. Need space for {self._size} bytes.")
        copy_ptr_to_host(self.ptr, view[: self._size], stream)
        return ary

    def copy_from_host(self, ary: Any, stream: Stream = DEFAULT_STREAM) -> None:
        """Copy bytes of Python to the beginning of the buffer."""
        stream = as_stream(stream)
        view = plain_bytes(ary, "ary")
        if view.nbytes > self._size:
            raise ValueError(f"Argument `ary` is too large. Need space for {view.nbytes} bytes.")
        copy_host_to_ptr(view, self.ptr, stream)

    def copy_from_device(self, cuda_ary: Any, stream: Stream = DEFAULT_STREAM) -> None:
        """Copy an array with `__cuda_array_interface__` to the beginning of the buffer, in the order of the stream."""
        stream = as_stream(stream)
        if not hasattr(cuda_ary, "__cuda_array_interface__"):
            raise ValueError("Expected object to support `__cuda_array_interface__` protocol")
        address, nbytes = _row_of(cuda_ary.__cuda_array_interface__)
        if nbytes > self._size:
            raise ValueError(f"Argument `cuda_ary` is too large. Need space for {nbytes} bytes.")
        copy_device_to_ptr(address, self.ptr, nbytes, stream)

    def tobytes(self, stream: Stream = DEFAULT_STREAM) -> bytes:
        """The bytes, copied to Python."""
        stream = as_stream(stream)
        target = bytearray(self._size)
        self.copy_to_host(target, stream)
        return bytes(target)

    def reserve(self, new_capacity: int, stream: Stream = DEFAULT_STREAM) -> None:
        """Have room for so many bytes; what is there stays, perhaps at another address."""
        stream = as_stream(stream)
        if new_capacity <= self.capacity():
            return
        before, after = self._block, self._allocate(new_capacity, stream)
        if before is not None and after is not None:
            copy_device_to_ptr(before.ptr, after.ptr, self._size, stream)
        self._block, self.stream = after, stream
        if before is not None:
            self.mr.give_back(before, stream)

    def resize(self, new_size: int, stream: Stream = DEFAULT_STREAM) -> None:
        """Have so many bytes; what is there stays, and what is new is not set."""
        stream = as_stream(stream)
        if new_size < 0:
            raise errors.InvalidSize(new_size, what="it is negative")
        self.reserve(new_size, stream)
        self._size, self.stream = new_size, stream

    def capacity(self) -> int:
        """How many bytes there is room for."""
        return 0 if self._block is None else self._block.nbytes


def to_device(b: Any, stream: Stream = DEFAULT_STREAM) -> DeviceBuffer:
    """A new buffer of the current resource with a copy of bytes of Python.

    >>> bytes(to_device(b"abc"))
    b'abc'
    """
    stream = as_stream(stream)
    view = plain_bytes(b, "b")
    buffer = DeviceBuffer(size=view.nbytes, stream=stream)
    copy_host_to_ptr(view, buffer.ptr, stream)
    return buffer


def _row_of(interface: dict[str, Any]) -> tuple[int, int]:
    """The address and size of an array in one row without gaps, which is all that can be copied here."""
    shape, strides = interface["shape"], interface.get("strides")
    itemsize = int(interface["typestr"][2:])
    if len(shape) > 1:
        raise ValueError(f"Only 1-D contiguous arrays are supported, got {len(shape)}-D array")
    if strides is not None and shape and strides[0] != itemsize:
        raise ValueError("Only 1-D contiguous arrays are supported, got a non-contiguous array")
    return interface["data"][0], (shape[0] if shape else 1) * itemsize


explain_misspellings(globals())
