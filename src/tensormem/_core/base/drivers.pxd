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
    cdef int32_t _location(self, object device) except? -2


# The driver of what `said` means, which has to be one of the kinds of space in `among`; `purpose` is for the refusal.
cdef Driver find_driver(object said, tuple among, str purpose, bint ordinals)
# The number of the device that `said` means, which has to be one of the driver's.
cdef int32_t ordinal_on(Driver driver, object said) except? -1


# A Driver for a native one that lives for ever. `device` is the one whose default stream is its default stream.
# "host", "cuda:0", "rocm:1"; "nothing" for None.
cdef str place_name(Driver driver, int32_t device)
cdef Driver wrap_driver(NativeDriver* native, int32_t device, bint simulated)
