# Owns: the declarations of native/order: what is held for streams.
from libc.stdint cimport int32_t, uint64_t
from libcpp cimport bool as cbool

from tensormem._core.native cimport Driver, Status, StreamId


cdef extern from "order/stream_holds.hpp" namespace "tensormem" nogil:
    cdef cppclass StreamHolder:
        void* object
        void (*release)(void*) noexcept nogil
        cbool releases_quickly
    cdef cppclass StreamHolds:
        Status hold(Driver& driver, int32_t device, StreamId stream, const StreamHolder& holder)
        void strand(const StreamHolder& holder)
        uint64_t reap()
        uint64_t reap(cbool quickly)
        uint64_t reap_quickly(const Driver& driver, StreamId stream)
        void finish(const char* driver_name)
    StreamHolds& stream_holds()
    cbool any_stream_holds()
    uint64_t stream_hold_count()
