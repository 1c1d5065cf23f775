# cython: language_level=3, freethreading_compatible=True
"""Owns: `HostMemoryResource`, the leaf that makes main memory."""
import os

from libcpp.memory cimport make_shared, static_pointer_cast

from tensormem._core.drivers cimport Driver
from tensormem._core.native cimport AllocationOptions, MemoryKind, PlainMemoryResource, Resource, ResourcePtr
from tensormem._core.resources cimport DeviceMemoryResource

from tensormem import errors
from tensormem._core import drivers


cdef class HostMemoryResource(DeviceMemoryResource):
    """Main memory, straight from the operating system.

    `huge_pages` asks for 2 MiB pages (large blocks get them where the system can), `numa_node` puts the memory on one
    node, `zeroed` clears it.

    >>> import tensormem as tm
    >>> mr = tm.mr.HostMemoryResource(zeroed=True)
    >>> block = mr.allocate("1MiB", alignment=4096)
    >>> block.ptr % 4096, mr.bytes_outstanding
    (0, 1048576)
    """

    cdef readonly bint huge_pages
    cdef readonly object numa_node
    cdef readonly bint zeroed

    def __init__(self, *, bint huge_pages=False, numa_node=None, bint zeroed=False):
        cdef AllocationOptions options
        cdef Driver driver = drivers.host()
        options.kind = MemoryKind.device
        options.huge_pages = huge_pages
        options.zeroed = zeroed
        if numa_node is not None:
            options.numa_node = _node(numa_node)
        self.huge_pages = huge_pages
        self.numa_node = numa_node
        self.zeroed = zeroed
        self.adopt(
            static_pointer_cast[Resource, PlainMemoryResource](
                make_shared[PlainMemoryResource](driver.native[0], 0, options)),
            driver,
            None,
        )


cdef int _node(object node) except -1:
    # The kernel lists the nodes it has; without the list there is one.
    exists = isinstance(node, int) and node >= 0 and (node == 0 or os.path.isdir(f"/sys/devices/system/node/node{node}"))
    if not exists:
        raise errors.InvalidArgument(f"numa_node {node!r} does not exist on this machine")
    return node
