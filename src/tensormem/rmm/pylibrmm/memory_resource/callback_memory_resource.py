"""Owns: memory from two functions of the user, by RMM's names. Must not know: what the functions do."""

from collections.abc import Callable

from tensormem import mr, streams
from tensormem.rmm.pylibrmm.memory_resource.device_memory_resource import DeviceMemoryResource, asked_stream
from tensormem.rmm.pylibrmm.stream import DEFAULT_STREAM, Stream

__all__ = ["CallbackMemoryResource"]


class CallbackMemoryResource(DeviceMemoryResource):
    """Memory from `allocate_func(nbytes, stream)`, which gives an address, back to
    `deallocate_func(address, nbytes, stream)`.

    What the functions raise reaches the caller: a `MemoryError` as one, all else as a `RuntimeError`.

    >>> from tensormem import rmm
    >>> base = rmm.mr.SystemMemoryResource()
    >>> mr = rmm.mr.CallbackMemoryResource(base.allocate, base.deallocate)
    >>> mr.deallocate(mr.allocate(1024), 1024)
    """

    def __init__(
        self,
        allocate_func: Callable[[int, Stream], int],
        deallocate_func: Callable[[int, int, Stream], object],
    ) -> None:
        def allocate(nbytes: int, stream: streams.Stream) -> int:
            return allocate_func(nbytes, _told(stream))

        def deallocate(ptr: int, nbytes: int, stream: streams.Stream) -> object:
            return deallocate_func(ptr, nbytes, _told(stream))

        super().__init__(mr.CallbackMemoryResource(allocate, deallocate))


def _told(stream: streams.Stream) -> Stream:
    """The stream that the caller named, or else the one that the block is on."""
    asked = asked_stream.get()
    if asked is not None:
        return asked
    return DEFAULT_STREAM if stream.is_default else Stream(stream)
