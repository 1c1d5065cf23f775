# Owns: the C shape of Stream and Event, for the other modules of this package.
from libc.stdint cimport int32_t

from tensormem._core.construction cimport Construction
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native cimport EventHandle
from tensormem._core.native cimport StreamId as StreamNumber  # `StreamId` is the value that Python sees


cdef class Stream:
    cdef readonly Driver driver
    cdef readonly int32_t device
    cdef StreamNumber _id
    cdef bint _owned
    cdef Construction _construction
    cdef object __weakref__

    cdef NativeDriver* _native(self) except NULL


cdef class Event:
    cdef readonly Driver driver
    cdef readonly bint timing
    cdef EventHandle _handle
    cdef Construction _construction
    cdef object __weakref__


# Tells `sys.unraisablehook` about an exception that nobody can be given; `where` is what raised it.
cdef void report_unraisable(object error, object where) noexcept


# The value that names a stream, whoever owns it.
cdef object new_stream_id(Driver driver, StreamNumber number)
# A Stream for an id that somebody else owns.
cdef Stream borrow_stream(Driver driver, StreamNumber stream)


# The id behind what a caller passed as `stream`, for work on `driver`; None is the default stream.
cdef StreamNumber stream_id_slow(object stream, NativeDriver* driver) except? 0xFFFFFFFFFFFFFFFF


cdef inline StreamNumber stream_id(object stream, NativeDriver* driver) except? 0xFFFFFFFFFFFFFFFF:
    if stream is None:
        return 0
    if type(stream) is Stream and (<Stream>stream).driver is not None and (<Stream>stream).driver.native is driver:
        return (<Stream>stream)._id
    return stream_id_slow(stream, driver)
