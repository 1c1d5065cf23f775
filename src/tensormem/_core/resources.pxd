# Owns: the C shape of blocks and resources, for the other modules of this package.
from tensormem._core.drivers cimport Driver
from tensormem._core.native cimport Block, Resource, ResourcePtr, StreamId


cdef class DeviceBlock:
    cdef Block raw
    cdef DeviceMemoryResource _mr
    cdef bint _owned  # to be given back when dropped
    cdef object __weakref__


cdef class DeviceMemoryResource:
    cdef ResourcePtr _owner
    cdef Resource* native
    cdef readonly Driver driver
    cdef readonly object upstream_mr
    cdef dict __dict__
    cdef object __weakref__

    cdef int _check_open(self) except -1
    cdef StreamId _use(self, DeviceBlock block, object stream) except? 0xFFFFFFFFFFFFFFFF
    cdef adopt(self, ResourcePtr native, Driver driver, object upstream)
