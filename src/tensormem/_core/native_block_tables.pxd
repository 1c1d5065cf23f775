# Owns: the declarations of native/pool/block_tables.hpp that the Cython modules of this package use. No code.
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from tensormem._core.native cimport Status, StreamId, TagId
from tensormem._core.native_block_cache cimport BlockCache, CacheBlockId


cdef extern from "pool/block_tables.hpp" namespace "tensormem" nogil:
    ctypedef uint64_t SequenceId
    cdef cppclass BlockTablesStats:
        uint64_t sequences
        uint64_t held_blocks
        uint64_t resting_blocks
        uint64_t asked_tokens
        uint64_t matched_tokens
        uint64_t total_copied
        uint64_t total_evicted
    cdef cppclass BlockTables:
        @staticmethod
        Status open(shared_ptr[BlockCache] cache, uint64_t block_tokens, shared_ptr[BlockTables]* tables)
        uint64_t block_tokens()
        Status allocate(const int64_t* lengths, uint64_t count, TagId tag, SequenceId* sequences)
        Status admit(const int64_t* tokens, const int64_t* lengths, uint64_t count, uint64_t salt, TagId tag,
                     SequenceId* sequences, int64_t* matched)
        Status extend(const SequenceId* sequences, const int64_t* added, uint64_t count, TagId tag, StreamId stream)
        Status truncate(const SequenceId* sequences, const int64_t* lengths, uint64_t count)
        Status commit(const SequenceId* sequences, const int64_t* tokens, const int64_t* lengths, uint64_t count)
        Status fork(const SequenceId* sequences, uint64_t count, SequenceId* twins)
        Status free(const SequenceId* sequences, uint64_t count)
        Status lengths(const SequenceId* sequences, uint64_t count, int64_t* lengths)
        Status width(const SequenceId* sequences, uint64_t count, uint64_t* width)
        Status slots(const SequenceId* sequences, uint64_t count, uint64_t width, int32_t fill, int32_t* out)
        Status slots(const SequenceId* sequences, uint64_t count, uint64_t width, int64_t fill, int64_t* out)
        Status token_slots(const SequenceId* sequences, const int64_t* starts, const int64_t* counts, uint64_t count,
                           int64_t* out)
        Status blocks(SequenceId sequence, vector[CacheBlockId]* ids)
        uint64_t evict(uint64_t count)
        uint64_t evict_pages(uint64_t nbytes)
        BlockTablesStats stats()
        cbool is_valid()
