"""Owns: the crossing of integers from Python: sizes, alignments, addresses and timeouts."""
from tensormem._core.native cimport kForEver

from tensormem import errors
from tensormem.units import parse_size


cdef uint64_t size_slow(object value) except? 0xFFFFFFFFFFFFFFFF:
    # Text such as "2MiB", anything with __index__; errors name the value.
    return <uint64_t>parse_size(value)


cdef uint64_t address_of(object value) except? 0xFFFFFFFFFFFFFFFF:
    try:
        number = value.__index__()
    except AttributeError:
        raise errors.InvalidArgument(f"an address is an integer, not {type(value).__name__}") from None
    if not 0 <= number < 2**64:
        raise errors.InvalidArgument(f"an address has 64 bits: {number:#x} does not fit")
    return <uint64_t>number


cdef uint64_t alignment_of(object value) except 0:
    # Whether it is a power of two is the callee's rule; what does not fit at all is refused here.
    cdef uint64_t number
    try:
        number = size_of(value)
    except errors.InvalidSize:
        raise errors.InvalidAlignment(value) from None
    if number == 0:
        raise errors.InvalidAlignment(value)
    return number


cdef uint64_t timeout_of(object seconds) except? 0xFFFFFFFFFFFFFFFE:
    if seconds is None:
        return kForEver
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 1e9:
        raise errors.InvalidArgument(f"a timeout is a number of seconds from 0 on, or None, not {seconds!r:.80}")
    return <uint64_t>(seconds * 1e9)
