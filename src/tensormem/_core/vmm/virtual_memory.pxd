# Owns: the C shape of the virtual memory manager and its three objects, for the other modules of this package.
from libc.stdint cimport int32_t, uint64_t
from libcpp.memory cimport unique_ptr
from libcpp.vector cimport vector

from tensormem._core.construction cimport Construction
from tensormem._core.base cimport Driver
from tensormem._core.native_vmm cimport AddressRangePtr, MapRequest, PhysicalPtr
from tensormem._core.native_vmm cimport VirtualMemoryManager as NativeManager


cdef class PhysicalAllocation:
    cdef PhysicalPtr native
    cdef readonly VirtualMemoryManager manager
    cdef object __weakref__


cdef class VirtualAddressRange:
    cdef AddressRangePtr native
    cdef readonly VirtualMemoryManager manager
    cdef object __weakref__


cdef class Mapping:
    cdef readonly VirtualAddressRange range
    cdef readonly PhysicalAllocation physical
    cdef readonly uint64_t offset
    cdef readonly uint64_t size
    cdef readonly uint64_t physical_offset
    cdef uint64_t _serial
    cdef object __weakref__


cdef class VirtualMemoryManager:
    cdef unique_ptr[NativeManager] native
    cdef readonly Driver driver
    cdef Construction _construction
    cdef object __weakref__

    cdef int _check_open(self) except -1
    cdef dict _held(self)
    cdef uint64_t _ask(self, vector[MapRequest]* requests, object physical, uint64_t at, uint64_t skip,
                       object size) except? 0xFFFFFFFFFFFFFFFF
    cdef VirtualAddressRange _own_range(self, object value)
    cdef PhysicalAllocation _own_physical(self, object value)
    cdef int32_t _device(self, object device) except? -1
    cdef PhysicalAllocation _adopt(self, PhysicalPtr native)
