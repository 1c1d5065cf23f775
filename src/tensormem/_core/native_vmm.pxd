# Owns: the declarations of native/vmm that the Cython modules of this package use. No code.
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.map cimport map as cmap
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.vector cimport vector

from tensormem._core.native cimport (
    AccessFlags,
    Driver,
    Granularity,
    PhysicalHandle,
    PhysicalInfo,
    PhysicalOptions,
    Status,
)


cdef extern from "vmm/physical_allocation.hpp" namespace "tensormem" nogil:
    cdef cppclass PhysicalAllocation:
        PhysicalHandle handle()
        uint64_t size()
        const PhysicalInfo& info()
        uint64_t mapping_count()
        cbool is_closed()
        Status free()
        void close()
        Status export_fd(int32_t* fd)
        void keep_charge(shared_ptr[void] charge)
    ctypedef shared_ptr[PhysicalAllocation] PhysicalPtr


cdef extern from "vmm/mapping_table.hpp" namespace "tensormem" nogil:
    cdef cppclass Mapping:
        uint64_t size
        PhysicalPtr physical
        uint64_t physical_offset
        uint64_t serial


cdef extern from "vmm/address_range.hpp" namespace "tensormem" nogil:
    cdef cppclass MapRequest:
        PhysicalPtr physical
        uint64_t offset
        uint64_t physical_offset
        uint64_t size
    cdef cppclass AddressRange:
        uint32_t id()
        uint64_t base()
        uint64_t size()
        uint64_t alignment()
        cbool is_released()
        Status map(const vector[MapRequest]& requests, int32_t device, AccessFlags access, uint64_t* serial)
        Status unmap(uint64_t offset, uint64_t size)
        Status unmap_serial(uint64_t offset, uint64_t size, uint64_t serial)
        Status unmap_rest(uint64_t offset, uint64_t size, uint64_t serial)
        Status set_access(uint64_t offset, uint64_t size, int32_t device, AccessFlags access)
        Status get_access(uint64_t offset, uint64_t size, int32_t device, AccessFlags* access)
        Status move(uint64_t offset, uint64_t size, uint64_t serial, AddressRange& target, uint64_t new_offset,
                    uint64_t* new_serial)
        Status release()
        Status close()
        cbool is_mapped(uint64_t offset, uint64_t size)
        Status is_current(uint64_t offset, uint64_t size, uint64_t serial)
        cmap[uint64_t, Mapping] mappings() except +MemoryError
        cbool is_valid()
    ctypedef shared_ptr[AddressRange] AddressRangePtr


cdef extern from "vmm/vmm_counters.hpp" namespace "tensormem" nogil:
    cdef cppclass AtomicCount "std::atomic<std::uint64_t>":
        uint64_t load()
    cdef cppclass VmmCounters:
        AtomicCount ranges
        AtomicCount reserved_bytes
        AtomicCount physicals
        AtomicCount physical_bytes
        AtomicCount mappings
        AtomicCount mapped_bytes


cdef extern from "vmm/virtual_memory_manager.hpp" namespace "tensormem" nogil:
    cdef cppclass VirtualMemoryManager:
        @staticmethod
        Status open(Driver& driver, int32_t device, unique_ptr[VirtualMemoryManager]* manager)
        int32_t device()
        const Granularity& granularity()
        const VmmCounters& counters()
        Status reserve(uint64_t size, uint64_t alignment, AddressRangePtr* range)
        Status alloc_physical(uint64_t size, int32_t device, const PhysicalOptions& options, PhysicalPtr* physical)
        Status import_physical(int32_t fd, int32_t device, uint64_t expected_size, PhysicalPtr* physical)
        Status close()
        cbool is_closed()
