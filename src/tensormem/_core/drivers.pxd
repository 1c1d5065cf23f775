# Owns: the C shape of Driver, for the other modules of this package.
from tensormem._core.native cimport Driver as NativeDriver


cdef class Driver:
    cdef NativeDriver* native
    cdef readonly str name
    cdef object __weakref__
