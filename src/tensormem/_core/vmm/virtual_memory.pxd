# Owns: the C shape of the virtual memory manager and its three objects, for the other modules of this package.
from libc.stdint cimport int32_t, uint64_t
from libcpp.map cimport map as cmap
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.vector cimport vector

from tensormem._core.construction cimport Construction
from tensormem._core.base cimport Driver
from tensormem._core.native cimport PhysicalOptions, TagId
from tensormem._core.native_vmm cimport AddressRangePtr, MapRequest, PhysicalPtr
from tensormem._core.native_vmm cimport VirtualMemoryManager as NativeManager
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native_pool cimport BudgetPtr
from tensormem._core.resource cimport ExportCount


cdef extern from "pool/page_charge.hpp" namespace "tensormem" nogil:
    cdef cppclass PageTally:
        PageTally(const NativeDriver& driver, int32_t device) except +MemoryError
        BudgetPtr budget()
        uint64_t used()
    cdef cppclass PageCharge:
        PageCharge(shared_ptr[PageTally] tally, BudgetPtr budget, uint64_t handle, uint64_t bytes, TagId tag)


cdef class PhysicalAllocation:
    cdef PhysicalPtr native
    cdef readonly VirtualMemoryManager manager
    cdef object __weakref__


cdef class VirtualAddressRange:
    cdef AddressRangePtr native
    cdef readonly VirtualMemoryManager manager
    cdef ExportCount _uses  # by calls that are under way
    cdef object __weakref__

    # Refuses to unmap or release what a call of another thread uses.
    cdef int check_unused(self, uint64_t start=?, uint64_t nbytes=?) except -1


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
    cdef cmap[int32_t, shared_ptr[PageTally]] _tallies  # of pages made by hand, by the ordinal of their device
    cdef ExportCount _uses  # of its ranges, by calls that are under way
    cdef Construction _construction
    cdef object __weakref__

    # Pages that somebody else is charged for.
    cdef PhysicalAllocation make_pages(self, uint64_t nbytes, int32_t ordinal, const PhysicalOptions& options, TagId tag)
    cdef shared_ptr[PageTally] _tally(self, int32_t ordinal) except *
    cdef int _check_open(self) except -1
    cdef dict _held(self)
    cdef uint64_t _ask(self, vector[MapRequest]* requests, object physical, uint64_t at, uint64_t skip,
                       object size) except? 0xFFFFFFFFFFFFFFFF
    cdef VirtualAddressRange _own_range(self, object value)
    cdef PhysicalAllocation _own_physical(self, object value)
    cdef int32_t _device(self, object device) except? -1
    cdef PhysicalAllocation _adopt(self, PhysicalPtr native)
