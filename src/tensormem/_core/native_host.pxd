# Owns: the declarations of what only the host driver has.
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string

from tensormem._core.native cimport Driver


cdef extern from "driver/host/host_driver.hpp" namespace "tensormem" nogil:
    cdef cppclass HostDriver(Driver):
        cbool huge_pages_work()
        string huge_page_reason()
        uint64_t vma_count()
        uint64_t vma_limit()
    HostDriver& host_driver()
