# Owns: the C shape of a budget that Python code can claim from by hand.
from libc.stdint cimport uint32_t, uint64_t

from tensormem._core.resource cimport Budget


cdef class ClaimableBudget(Budget):
    cdef uint64_t _claimed  # by hand
    cdef object _lock
    cdef readonly object on_pressure


cdef uint64_t maximum_of(object value) except? 0xFFFFFFFFFFFFFFFF
cdef object shown_maximum(uint64_t value)
cdef uint32_t priority_of(object value) except 0
cdef int check_callback(str name, object value) except -1
