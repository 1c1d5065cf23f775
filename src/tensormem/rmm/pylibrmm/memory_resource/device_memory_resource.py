"""Owns: what every resource of `rmm.mr` is: one of tensormem's under RMM's calls, which speak of plain addresses.

Must not know: which resource it is, or which one is current.
"""

from contextvars import ContextVar

from tensormem import errors, mr
from tensormem.rmm.pylibrmm.memory_resource import outstanding
from tensormem.rmm.pylibrmm.stream import DEFAULT_STREAM, Stream
from tensormem.rmm.pylibrmm.utils import as_stream

__all__ = ["DeviceMemoryResource", "allocate_block", "asked_stream"]

# The stream that was named, where the driver of the resource cannot take it: a callback is told all the same.
asked_stream: ContextVar[Stream | None] = ContextVar("tensormem.rmm.asked_stream", default=None)


class DeviceMemoryResource:
    """Any resource of tensormem under RMM's calls; its own classes are made of these.

    >>> import tensormem as tm
    >>> resource = DeviceMemoryResource(tm.mr.HostMemoryResource())
    >>> address = resource.allocate(1024)
    >>> resource.deallocate(address, 1024)
    """

    resource: mr.DeviceMemoryResource
    """The resource that hands out the memory."""

    def __init__(self, resource: mr.DeviceMemoryResource) -> None:
        if not isinstance(resource, mr.DeviceMemoryResource):
            raise errors.InvalidArgument(f"a resource of tensormem is needed, not {type(resource).__name__}")
        self.resource = resource

    def allocate(self, nbytes: int, stream: Stream = DEFAULT_STREAM) -> int:
        """Allocate `nbytes` on a stream; gives the address, which is 0 for no bytes."""
        stream = as_stream(stream)
        if nbytes == 0:
            return 0
        return outstanding.keep(self.resource, allocate_block(self.resource, nbytes, stream))

    def deallocate(self, ptr: int, nbytes: int, stream: Stream = DEFAULT_STREAM) -> None:
        """Take back what `allocate(nbytes)` gave. Another address or size is refused, and nothing changes."""
        stream = as_stream(stream)
        if nbytes == 0 and ptr == 0:
            return
        self.give_back(outstanding.take(self.resource, ptr, nbytes), stream)

    def give_back(self, block: mr.DeviceBlock, stream: Stream) -> None:
        """Take a block back after the work of a stream; where its driver cannot order that, wait for the stream."""
        driver = block.mr.driver
        if not stream.is_foreign_to(driver):
            block.mr.deallocate(block, stream.on(driver))
            return
        stream.synchronize()
        token = asked_stream.set(stream)
        try:
            block.mr.deallocate(block)
        finally:
            asked_stream.reset(token)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self.resource!r}>"


def allocate_block(resource: mr.DeviceMemoryResource, nbytes: int, stream: Stream) -> mr.DeviceBlock:
    """A block of a resource, on a stream if its driver has streams of that kind."""
    if not stream.is_foreign_to(resource.driver):
        return resource.allocate(nbytes, stream.on(resource.driver))
    token = asked_stream.set(stream)
    try:
        return resource.allocate(nbytes)
    finally:
        asked_stream.reset(token)
