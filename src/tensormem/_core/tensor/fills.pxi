"""Owns: setting every element of a tensor to one value, by the CPU at once or by a driver on a stream.

Must not know: spaces, or which stream; that is chosen above, by `tensormem.copy`.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.utility cimport move

from tensormem._core.base cimport Driver, Stream
from tensormem._core.failures cimport check
from tensormem._core.native cimport Access, Status, StreamId
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native_host cimport host_driver
from tensormem._core.native_tensor cimport FillRequest, fill_layout

from tensormem import errors

# Below this, letting go of the GIL costs more than the fill.
cdef uint64_t _ANY = 0xFFFFFFFFFFFFFFFE


def fill_now(Tensor tensor not None, bytes pattern not None):
    """Fill memory that the CPU reaches with the bytes of one element, or of as many as share whole bytes."""
    cdef Storage storage = tensor.storage
    cdef uint64_t first = tensor.first
    storage.begin_use()
    try:
        if storage.is_pending():
            storage.settle()
        if storage.accesses is None:
            prepare_now(storage, Access.write)
            _fill(<NativeDriver*>&host_driver(), tensor, first, 0, pattern, 0, _ANY)
            return
        first += storage.accesses.begin_planned("w") - storage.address
        try:
            _fill(<NativeDriver*>&host_driver(), tensor, first, 0, pattern, 0, _ANY)
        finally:
            storage.accesses.end_planned("w")
    finally:
        storage.end_use()


def fill_on(Tensor tensor not None, bytes pattern not None, Stream work not None, int32_t device, most_calls=4096):
    """Fill with the driver, in the order of its stream; False where that would take too many calls."""
    return _fill(work.driver.native, tensor, tensor.first, device, pattern, work._id, most_calls)


cdef bint _fill(NativeDriver* driver, Tensor tensor, uint64_t first, int32_t device, bytes pattern, StreamId stream,
                uint64_t most_calls) except -1:
    cdef int64_t[64] steps
    cdef int64_t[1] length
    cdef FillRequest request
    cdef int32_t i
    cdef uint64_t nbytes = tensor.nbytes_()
    tensor.storage.check_reach("a fill")
    tensor.check_mapped()
    request.device = device
    request.element = <const uint8_t*><const char*>pattern
    request.item_bytes = len(pattern)
    request.to.address = first
    request.to.byte_strides = steps
    if not tensor.element.width.packed:
        request.ndim = tensor.rank
        request.shape = tensor.dims
        for i in range(tensor.rank):
            steps[i] = tensor.steps()[i] * <int64_t>request.item_bytes
        return _run(driver, request, nbytes, stream, most_calls)
    # Elements that share bytes lie without gaps: each byte of the pattern goes to every so manieth byte.
    request.ndim = 1
    request.shape = length
    steps[0] = <int64_t>request.item_bytes
    count = request.item_bytes
    request.item_bytes = 1
    for i in range(<int32_t>count):
        length[0] = <int64_t>((nbytes - i + count - 1) // count) if <uint64_t>i < nbytes else 0
        if not _run(driver, request, nbytes, stream, most_calls):
            return False
        request.to.address += 1
        request.element += 1
    return True


cdef bint _run(NativeDriver* driver, const FillRequest& request, uint64_t nbytes, StreamId stream,
               uint64_t most_calls) except -1:
    cdef Status status
    cdef cbool filled = False
    if nbytes <= _QUICK and driver == <NativeDriver*>&host_driver() and stream == 0:
        status = fill_layout(driver[0], request, most_calls, stream, &filled)
    else:
        with nogil:
            status = fill_layout(driver[0], request, most_calls, stream, &filled)
    check(move(status))
    return filled
