# Owns: the declarations of what only the host driver has.
from libc.stdint cimport uint32_t, uint64_t
from libcpp cimport bool as cbool

from tensormem._core.native cimport Driver, Status


cdef extern from "driver/host/host_driver.hpp" namespace "tensormem" nogil:
    cdef cppclass HostCounters:
        uint64_t streams
        uint64_t events
        uint64_t page_blocks
        uint64_t pins
        uint64_t reservations
        uint64_t mappings
        uint64_t physicals
        uint64_t committed_bytes
        uint64_t leftovers
        uint64_t areas
        uint64_t area_limit
    cdef cppclass HostDriver(Driver):
        void turn_off_huge_pages()
        Status set_stream_limit(uint32_t limit)
        cbool huge_pages_work()
        const char* huge_page_reason()
        HostCounters counters()
    HostDriver& host_driver()
