"""Owns: the leaves of a stack: resources that make memory instead of cutting up somebody else's."""
import os

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint64_t
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast
from libcpp.utility cimport move

from tensormem._core.construction cimport begin_construction
from tensormem._core.base cimport Driver, address_of, alignment_of, borrow_stream, find_driver, size_of
from tensormem._core.failures cimport check
from tensormem._core.hooks cimport memory_callbacks, python_failure
from tensormem._core.native cimport (
    AllocationOptions,
    AllocRequest,
    AsyncMemoryResource,
    CallbackMemoryResource as NativeCallbackMemoryResource,
    MemoryKind,
    PlainMemoryResource,
    Resource,
    ResourcePtr,
    Status,
    StreamId,
)

from tensormem import errors
from tensormem._core import base


cdef uint64_t _KEEP_ALL = 0xFFFFFFFFFFFFFFFF


cdef ResourcePtr _plain(Driver driver, int32_t device, const AllocationOptions& options):
    return static_pointer_cast[Resource, PlainMemoryResource](
        make_shared[PlainMemoryResource](driver.native[0], device, options))


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
        begin_construction(self._construction, self)
        cdef AllocationOptions options
        cdef Driver driver = base.host()
        options.kind = MemoryKind.device
        options.huge_pages = huge_pages
        options.zeroed = zeroed
        if numa_node is not None:
            options.numa_node = _node(numa_node)
        self.huge_pages = huge_pages
        self.numa_node = numa_node
        self.zeroed = zeroed
        self.adopt(_plain(driver, 0, options), driver, None)


cdef class PinnedMemoryResource(DeviceMemoryResource):
    """Main memory that is locked in place, so that devices reach it directly and it is never swapped out.

    How much a process may lock is limited (`tensormem doctor` tells). With a GPU as the `device` ("cuda:0"), its driver
    makes the memory and knows it as its own; "pinned" is the driver of the first GPU, if there is one.

    >>> import tensormem as tm
    >>> mr = tm.mr.PinnedMemoryResource()
    >>> mr.deallocate(mr.allocate("64KiB"))
    """

    def __init__(self, device=None):
        begin_construction(self._construction, self)
        cdef AllocationOptions options
        cdef Driver driver = base.host()
        if device is not None:
            driver = find_driver(device, ("main", "pinned", "gpu"), "pinned memory is made by the driver", True)
        options.kind = MemoryKind.pinned
        self.adopt(_plain(driver, driver.device, options), driver, None)


cdef class GpuMemoryResource(DeviceMemoryResource):
    """The memory of a GPU, straight from its driver: each block is one allocation, and freeing one may wait.

    `device` is a number, text such as "cuda:1", a space such as `tm.gpu(1)`, or a driver.

    >>> import tensormem as tm
    >>> from tensormem.testing import simulated_gpu
    >>> with simulated_gpu(memory="64MiB"):
    ...     mr = tm.mr.GpuMemoryResource("cuda:0")
    ...     block = mr.allocate("1MiB")
    ...     print(mr, block.nbytes, mr.is_host_accessible)
    ...     mr.deallocate(block)
    GpuMemoryResource 1048576 False
    """

    def __init__(self, device=0):
        begin_construction(self._construction, self)
        cdef AllocationOptions options
        cdef Driver driver = find_driver(device, ("gpu",), "the memory of a GPU is made", True)
        options.kind = MemoryKind.device
        self.adopt(_plain(driver, driver.device, options), driver, None)


cdef class ManagedMemoryResource(DeviceMemoryResource):
    """Memory that moves between the host and a GPU by itself, at one address for both.

    >>> import tensormem as tm
    >>> from tensormem.testing import simulated_gpu
    >>> with simulated_gpu(memory="64MiB"):
    ...     mr = tm.mr.ManagedMemoryResource("cuda:0")
    ...     block = mr.allocate("1MiB")
    ...     mr.advise(block, "preferred_location", -1)
    ...     mr.deallocate(block)
    """

    def __init__(self, device=0):
        begin_construction(self._construction, self)
        cdef AllocationOptions options
        cdef Driver driver = find_driver(device, ("gpu", "managed"), "managed memory is made by the driver", True)
        options.kind = MemoryKind.managed
        self.adopt(_plain(driver, driver.device, options), driver, None)

    def advise(self, DeviceBlock block not None, advice, device=None, *, bint unset=False):
        """Say how a block will be used: "read_mostly", "preferred_location" or "accessed_by" a device (-1: the host; the
        resource's own unless told). `unset` takes it back. The bytes are the same whatever is said."""
        if block.mr is not self:
            raise errors.InvalidArgument("the block is not one of this resource")
        self.driver.advise(block.ptr, block.nbytes, advice, device, unset=unset)


cdef class GpuAsyncMemoryResource(DeviceMemoryResource):
    """The memory of a GPU, handed out and taken back in the order of a stream by its driver's own pool.

    A block exists from its stream's present end on; other streams reach it through `prepare_block_use`, which waits.
    The pool is this resource's own. It keeps up to `release_threshold` bytes of free memory for the next blocks: all of
    it unless told, since taking memory from the device again is dear; `trim()` gives it back.

    >>> import tensormem as tm
    >>> from tensormem.testing import simulated_gpu
    >>> with simulated_gpu(memory="64MiB"):
    ...     mr = tm.mr.GpuAsyncMemoryResource("cuda:0", release_threshold="32MiB")
    ...     with tm.Stream(mr.driver) as stream:
    ...         mr.deallocate(mr.allocate("1MiB", stream), stream)
    ...     mr.release_threshold
    33554432
    """

    cdef object _release_threshold

    def __init__(self, device=0, *, release_threshold=None):
        begin_construction(self._construction, self)
        cdef Driver driver = find_driver(device, ("gpu",), "the memory of a GPU is made", True)
        cdef shared_ptr[AsyncMemoryResource] made
        cdef uint64_t keep = _KEEP_ALL if release_threshold is None else size_of(release_threshold)
        cdef Status status
        with nogil:
            status = AsyncMemoryResource.create(driver.native[0], driver.device, keep, &made)
        check(move(status))
        self._release_threshold = None if release_threshold is None else keep
        self.adopt(static_pointer_cast[Resource, AsyncMemoryResource](made), driver, None)

    @property
    def release_threshold(self):
        """How many bytes of free memory the pool keeps; None: all. Memory above it goes back when a stream, an event or
        the device is waited for."""
        return self._release_threshold

    @release_threshold.setter
    def release_threshold(self, nbytes):
        cdef uint64_t keep = _KEEP_ALL if nbytes is None else size_of(nbytes)
        self._check_open()
        check((<AsyncMemoryResource*>self.native).keep(keep))
        self._release_threshold = None if nbytes is None else keep

    def trim(self, keep_bytes=0):
        """Give the pool's free memory back to the device, down to `keep_bytes`."""
        self._check_open()
        check((<AsyncMemoryResource*>self.native).trim(size_of(keep_bytes)))


cdef class CallbackMemoryResource(DeviceMemoryResource):
    """Memory from two functions of yours.

    `allocate_func(nbytes, stream)` gives an address, a multiple of `alignment`; 0 or a `MemoryError` means that there is
    no memory. `deallocate_func(address, nbytes, stream)` takes it back. What else they raise becomes `CallbackFailed`.

    >>> import ctypes
    >>> import tensormem as tm
    >>> kept = {}
    >>> def take(nbytes, stream):
    ...     buffer = ctypes.create_string_buffer(nbytes)
    ...     kept[ctypes.addressof(buffer)] = buffer
    ...     return ctypes.addressof(buffer)
    >>> def give_back(address, nbytes, stream):
    ...     del kept[address]
    >>> mr = tm.mr.CallbackMemoryResource(take, give_back, alignment=1)
    >>> block = mr.allocate(1000)
    >>> len(kept)
    1
    >>> mr.deallocate(block)
    >>> len(kept)
    0
    """

    cdef readonly object allocate_func
    cdef readonly object deallocate_func

    def __init__(self, allocate_func, deallocate_func, *, alignment=256):
        begin_construction(self._construction, self)
        for function in (allocate_func, deallocate_func):
            if not callable(function):
                raise errors.InvalidArgument(f"a callback is something to call, not {type(function).__name__}")
        cdef Driver driver = base.host()
        cdef uint64_t aligned = alignment_of(alignment)
        context = (allocate_func, deallocate_func, driver)
        self.allocate_func = allocate_func
        self.deallocate_func = deallocate_func
        self.adopt(
            static_pointer_cast[Resource, NativeCallbackMemoryResource](
                make_shared[NativeCallbackMemoryResource](
                    driver.native[0], 0, memory_callbacks(<PyObject*>context, _take, _give_back), aligned)),
            driver,
            None,
        )


cdef void _take(PyObject* held, const AllocRequest* request, uint64_t* address, Status* status) noexcept with gil:
    context = <tuple>held
    try:
        given = context[0](request.nbytes, borrow_stream(context[2], request.stream))
        address[0] = 0 if given is None else address_of(given)
    except BaseException as error:
        status[0] = python_failure(<PyObject*>error, "the allocate function raised", request.nbytes)


cdef void _give_back(PyObject* held, uint64_t address, uint64_t nbytes, StreamId stream,
                     Status* status) noexcept with gil:
    context = <tuple>held
    try:
        context[1](address, nbytes, borrow_stream(context[2], stream))
    except BaseException as error:
        status[0] = python_failure(<PyObject*>error, "the deallocate function raised", nbytes)


cdef int _node(object node) except -1:
    # The kernel lists the nodes it has; without the list there is one.
    exists = isinstance(node, int) and node >= 0 and (node == 0 or os.path.isdir(f"/sys/devices/system/node/node{node}"))
    if not exists:
        raise errors.InvalidArgument(f"numa_node {node!r} does not exist on this machine")
    return node
