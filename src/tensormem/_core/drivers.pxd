# Owns: the C shape of Driver, for the other modules of this package.
from libc.stdint cimport int32_t

from tensormem._core.native cimport Driver as NativeDriver


cdef class Driver:
    cdef NativeDriver* native
    cdef readonly str name
    cdef readonly int32_t device
    cdef readonly bint simulated
    cdef object __weakref__

    cdef int32_t _device(self, object device) except? -1


# A Driver for a native one that lives for ever. `device` is the one whose default stream is its default stream.
# "host", "cuda:0", "rocm:1"; "nothing" for None.
cdef str place_name(Driver driver, int32_t device)
cdef Driver wrap_driver(NativeDriver* native, int32_t device, bint simulated)
