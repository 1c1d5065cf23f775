# Owns: the declarations of native/pool/block_cache.hpp that the Cython modules of this package use. No code.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from tensormem._core.native cimport Driver, Status, StreamId, TagId, Wait
from tensormem._core.native_pool cimport BudgetPtr


cdef extern from "pool/block_cache.hpp" namespace "tensormem" nogil:
    ctypedef uint64_t CacheBlockId
    cdef cppclass BlockCacheOptions:
        uint64_t capacity
        uint64_t block_bytes
        uint64_t page_bytes
        uint64_t planes
        int32_t device
        uint64_t idle_bytes
        double demand_blocks
        uint64_t ahead_pages
        cbool background
    cdef cppclass BlockCacheStats:
        uint64_t block_bytes
        uint64_t page_bytes
        uint64_t planes
        uint64_t pages_per_frame
        uint64_t blocks_per_frame
        uint64_t capacity_blocks
        uint64_t live_blocks
        uint64_t retired_blocks
        uint64_t pinned_blocks
        uint64_t used_pages
        uint64_t floor_pages
        uint64_t cached_pages
        uint64_t physical_bytes
        uint64_t peak_physical_bytes
        uint64_t created_pages
        uint64_t total_allocated
        uint64_t total_freed
        uint64_t total_moved
    cdef cppclass CacheBlockMove:
        CacheBlockId id
        uint32_t source "from"
        uint32_t to
    cdef cppclass PackingReport:
        uint64_t copied_bytes
        uint64_t released_pages
        double seconds
        cbool finished
        vector[CacheBlockMove] moves
    cdef cppclass BlockCache:
        @staticmethod
        Status open(Driver& driver, const BlockCacheOptions& options, BudgetPtr budget, shared_ptr[BlockCache]* cache)
        uint64_t base()
        uint64_t capacity()
        uint64_t capacity_blocks()
        uint64_t block_bytes()
        uint64_t planes()
        uint64_t stride()
        uint64_t plane_bytes()
        uint64_t address_of(uint32_t place)
        uint64_t page_bytes()
        uint64_t physical_bytes()
        const BudgetPtr& budget()
        Status allocate(uint64_t count, TagId tag, CacheBlockId* ids)
        Status free(const CacheBlockId* ids, uint64_t count, StreamId stream)
        Status addresses(const CacheBlockId* ids, uint64_t count, uint64_t* addresses)
        Status slots(const CacheBlockId* ids, uint64_t count, int32_t* slots)
        Status slots(const CacheBlockId* ids, uint64_t count, int64_t* slots)
        Status blocks_at(const int64_t* slots, uint64_t count, CacheBlockId* ids)
        Status check_range(uint64_t address, uint64_t nbytes)
        Status copy(const CacheBlockId* source, const CacheBlockId* to, uint64_t count, StreamId stream)
        cbool try_allocate(uint64_t count, TagId tag, CacheBlockId* ids)
        cbool try_free(const CacheBlockId* ids, uint64_t count)
        void return_excess()
        cbool has_excess()
        Status pin(const CacheBlockId* ids, uint64_t count)
        Status unpin(const CacheBlockId* ids, uint64_t count)
        Status record_use(const CacheBlockId* ids, uint64_t count, StreamId stream)
        Status reap_pending()
        Status wait_before_end(const Wait& wait)
        Status eviction_hints(uint64_t nbytes, const CacheBlockId* candidates, uint64_t candidate_count,
                              cbool any_block, vector[CacheBlockId]* ids)
        Status compact(uint64_t max_bytes, double max_seconds, PackingReport* report)
        Status begin_suspension()
        Status drop_memory()
        Status restore_memory()
        void cancel_suspension()
        Status live_blocks(vector[uint32_t]* places)
        uint64_t trim(uint64_t keep_bytes)
        uint64_t step_ahead(uint64_t most_pages)
        void set_retention(uint64_t idle_bytes, double demand_blocks)
        BlockCacheStats stats()
        cbool is_valid()
