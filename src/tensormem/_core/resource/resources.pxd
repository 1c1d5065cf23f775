# Owns: the C shape of blocks and resources, for the other modules of this package.
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr

from tensormem._core.construction cimport Construction
from tensormem._core.base cimport Driver
from tensormem._core.native cimport AllocRequest, Block, Resource, ResourcePtr, Status, StreamId, TagId
from tensormem._core.native cimport BlockState as NativeState


cdef extern from "_core/export_count.hpp" namespace "tensormem":
    cdef cppclass ExportCount:
        cbool add()
        void remove()
        cbool close()
        void reopen()
        int64_t count()
    Status give_back(Resource& resource, const Block& block, StreamId stream, NativeState* end, ExportCount& exports)


cdef extern from "_core/shared_use.hpp" namespace "tensormem":
    # The use of an object by one call; it ends with the function that has it, where the GIL is held again.
    cdef cppclass SharedUse[T]:
        SharedUse()
        SharedUse(shared_ptr[T] object, ExportCount* uses)
        T* get() nogil
        const shared_ptr[T]& shared()


cdef class BlockId:
    cdef Block raw
    cdef uint32_t resource  # the number of the resource that handed the block out
    cdef Driver driver
    cdef int32_t device


cdef class DeviceBlock:
    cdef Block raw
    cdef DeviceMemoryResource _mr
    cdef bint _owned  # to be given back when dropped
    cdef ExportCount _exports  # views of the memory that are out
    cdef object _stream  # of another library, kept until the block is given back
    cdef bint _offered  # when dropped, its resource's Python had its chance before
    cdef object __weakref__

    cdef DeviceMemoryResource _resource(self)


cdef class DeviceMemoryResource:
    cdef ResourcePtr _owner
    cdef Resource* native  # what a stack on top of this one calls
    cdef Resource* target  # what the methods of this class call: the upstream, for a resource written in Python
    cdef bint _in_python
    cdef dict _held  # blocks that native code holds, by generation; for a resource written in Python
    cdef readonly Driver driver
    cdef readonly object upstream_mr
    # The `LogicalMemorySpace` of its memory, and DLPack's numbers for it, once tensors asked for them.
    cdef object _space
    cdef int32_t _device_type
    cdef int32_t _device_id
    cdef dict __dict__
    cdef Construction _construction
    cdef object __weakref__

    cdef adopt(self, ResourcePtr native, Driver driver, object upstream)
    cdef int _check_open(self) except -1
    cdef int _request(self, AllocRequest* request, object nbytes, object stream, object alignment,
                      object tag) except -1
    # The block of a request that is complete, with a maker or without one, or the shortage with its report.
    cdef DeviceBlock take(self, const AllocRequest& request)
    cdef DeviceBlock _take_native(self, const AllocRequest& request)
    cdef DeviceBlock _wrap(self, DeviceBlock block)
    # The native block behind a block or a block id of this resource; raises `ForeignBlock` for another's.
    cdef const Block* _own(self, object block) except NULL


# The resource itself, checked: an upstream must have been initialised.
cdef DeviceMemoryResource upstream_of(object upstream)
cdef TagId tag_id(object text) except? 0xFFFFFFFF
# The tag of the text, or for None the one of the scope around.
cdef TagId tag_or_current(object text) except? 0xFFFFFFFF
