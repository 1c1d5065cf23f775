# Owns: the crossing of integers from Python: sizes and addresses, refused with their own error when they do not fit.
from libc.stdint cimport uint64_t
from cpython.long cimport PyLong_CheckExact


cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1


cdef uint64_t size_slow(object value) except? 0xFFFFFFFFFFFFFFFF
cdef uint64_t address_of(object value) except? 0xFFFFFFFFFFFFFFFF
cdef uint64_t alignment_of(object value) except 0
# A timeout in nanoseconds; kForEver for None.
cdef uint64_t timeout_of(object seconds) except? 0xFFFFFFFFFFFFFFFE


# A size given by a caller: a whole number, not negative, below 2**63. Whether 0 is allowed is the callee's rule.
cdef inline uint64_t size_of(object value) except? 0xFFFFFFFFFFFFFFFF:
    cdef int overflow = 0
    cdef long long number
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if number >= 0 and overflow == 0:
            return <uint64_t>number
    return size_slow(value)
