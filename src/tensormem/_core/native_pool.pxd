# Owns: the declarations of native/pool that the Cython modules of this package use. No code.
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from tensormem._core.native cimport Budget, BudgetPtr, Driver, LocalBudget, Status, StreamId, TagId, Wait


cdef extern from "pool/page_cache.hpp" namespace "tensormem" nogil:
    cdef cppclass PageCacheOptions:
        uint64_t low_pages
        uint64_t high_pages
        cbool background
    cdef cppclass PageCache:
        uint64_t trim(uint64_t keep_pages)
        uint64_t step_ahead(uint64_t most)
        void set_water(uint64_t low_pages, uint64_t high_pages)
        uint64_t low_pages()
        uint64_t high_pages()


cdef extern from "pool/virtual_memory_pool.hpp" namespace "tensormem" nogil:
    ctypedef uint64_t PoolBlockId
    cdef cppclass VirtualPoolOptions:
        uint64_t capacity
        uint64_t page_bytes
        int32_t device
        PageCacheOptions cache
    cdef cppclass PoolBlock:
        PoolBlockId id
        uint64_t offset
        uint64_t size
        uint64_t alignment
        TagId tag
        cbool is_named
        cbool movable
        cbool suspended
        uint32_t holds
        uint64_t suspension
        uint64_t generation
    cdef cppclass VirtualPoolStats:
        uint64_t capacity
        uint64_t page_bytes
        uint64_t mapped_pages
        uint64_t cached_pages
        uint64_t physical_bytes
        uint64_t peak_physical_bytes
        uint64_t live_bytes
        uint64_t live_blocks
        uint64_t retired_bytes
        uint64_t suspended_bytes
        uint64_t total_free
        uint64_t largest_free
        uint64_t created_pages
        uint64_t recycled_pages
    cdef cppclass CompactionLimits:
        uint64_t max_bytes
        double max_seconds
    cdef cppclass BlockMove:
        PoolBlockId id
        uint64_t old_offset
        uint64_t new_offset
    cdef cppclass CompactionReport:
        uint64_t remapped_pages
        uint64_t copied_bytes
        uint64_t released_pages
        double seconds
        cbool finished
        vector[BlockMove] moves
    cdef cppclass VirtualMemoryPool:
        @staticmethod
        Status open(Driver& driver, const VirtualPoolOptions& options, BudgetPtr budget,
                    shared_ptr[VirtualMemoryPool]* pool)
        uint64_t base()
        uint64_t capacity()
        uint64_t page_bytes()
        PageCache& cache()
        const BudgetPtr& budget()
        Status allocate_at(uint64_t offset, uint64_t size, TagId tag)
        Status deallocate_at(uint64_t offset, uint64_t size, StreamId stream)
        cbool is_mapped(uint64_t offset, uint64_t size)
        Status allocate(uint64_t size, uint64_t alignment, cbool movable, TagId tag, PoolBlockId* id)
        Status deallocate(PoolBlockId id, StreamId stream)
        void drop(PoolBlockId id)
        Status resize(PoolBlockId id, uint64_t size)
        Status find(PoolBlockId id, PoolBlock* block)
        Status hold(PoolBlockId id, uint64_t* offset)
        Status let_go(PoolBlockId id)
        Status record_use(PoolBlockId id, StreamId stream)
        Status record_use_at(uint64_t offset, uint64_t size, StreamId stream)
        Status reap_pending()
        Status wait_before_end(const Wait& wait)
        Status compact(const CompactionLimits& limits, CompactionReport* report)
        Status hold_tagged(TagId tag, vector[PoolBlock]* blocks)
        Status list_suspended(TagId tag, vector[PoolBlock]* blocks)
        cbool has_suspended(uint64_t suspension)
        Status suspend(const vector[PoolBlockId]& ids, uint64_t suspension)
        Status resume(const vector[PoolBlockId]& ids)
        VirtualPoolStats stats()
        uint64_t physical_bytes()
        cbool is_valid()
