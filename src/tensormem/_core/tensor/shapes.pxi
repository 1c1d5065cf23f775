"""Owns: shapes, strides and offsets as a caller gives them, and what is refused of them."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from tensormem._core.native_tensor cimport kMaxDims

from tensormem import errors


cdef int32_t parse_shape(object shape, int64_t* lengths) except -1:
    cdef int32_t rank
    if type(shape) is int:
        lengths[0] = _length(shape)
        return 1
    if not isinstance(shape, (tuple, list)):
        if hasattr(shape, "__index__"):
            lengths[0] = _length(shape)
            return 1
        try:
            shape = iter(shape)
        except TypeError:
            raise errors.InvalidArgument(f"a shape is a length or several, not {type(shape).__name__}") from None
    elif len(shape) > kMaxDims:
        raise errors.InvalidArgument(f"a tensor has at most {kMaxDims} dimensions, not {len(shape)}")
    rank = 0
    for length in shape:
        if rank == kMaxDims:  # counted here: an iterator may have no end, and a list may grow while it is read
            raise errors.InvalidArgument(f"a tensor has at most {kMaxDims} dimensions, and this shape has more")
        lengths[rank] = _length(length)
        rank += 1
    return rank


cdef int64_t _length(object length) except -1:
    cdef int64_t number = _whole(length, "a length")
    if number < 0:
        raise errors.InvalidArgument(f"a shape has no negative length: {number}")
    return number


cdef int64_t _whole(object value, str what) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow == 0:
            return number
    return _whole_slow(value, what)


cdef int64_t _whole_slow(object value, str what) except? -1:
    try:
        return PyNumber_Index(value)
    except TypeError:
        raise errors.InvalidArgument(f"{what} is a whole number, not {type(value).__name__}") from None
    except OverflowError:
        raise errors.InvalidSize(value, what=f"{what} has 64 bits") from None


cdef int _parse_strides(object strides, int32_t rank, int64_t* steps) except -1:
    given = tuple(strides)
    if len(given) != rank:
        raise errors.InvalidArgument(f"{len(given)} strides for {rank} dimensions")
    for i in range(rank):
        steps[<int32_t>i] = _whole(given[i], "a stride")
    return 0


cdef object _offset(object offset):
    start = offset.__index__() if hasattr(offset, "__index__") else -1
    if start < 0:
        raise errors.InvalidArgument(f"an offset is a number of bytes, not {offset!r:.80}")
    return start


cdef object _complete(object shape, uint64_t count):
    # One length may be left to find out.
    lengths = list(shape)
    if lengths.count(-1) != 1:
        return lengths
    known = 1
    for length in lengths:
        known *= 1 if length == -1 else _length(length)
    if known == 0 or count % known:
        raise errors.InvalidArgument(f"{count} elements cannot be shaped as {tuple(shape)}")
    lengths[lengths.index(-1)] = count // known
    return lengths
