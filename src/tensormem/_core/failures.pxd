# Owns: `check`, which turns a native Status into a Python exception.
from tensormem._core.native cimport Status


cdef extern from "_core/failures.hpp" namespace "tensormem":
    int check(Status status) except -1
