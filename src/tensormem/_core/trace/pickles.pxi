"""Owns: the walk over the opcodes of a pickle that nobody vouches for, before Python reads it.

Python's unpickler makes room for whatever number a value is to be remembered by: ten bytes can ask for 64 GiB. Whoever
writes pickles counts from 0. Must not know: what is in the pickle.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memchr, memcpy

cdef enum:
    _PUT = 112  # p, with a decimal number and a newline
    _BINPUT = 113  # q, with a byte
    _LONG_BINPUT = 114  # r, with four bytes
    _MEMOIZE = 0x94  # the next number
    _STOP = 46


cdef int _argument_bytes(uint8_t code) noexcept nogil:
    """How long the argument of an opcode is: -1, -4 and -8 for a length of so many bytes, -100 for each line."""
    if code in (75, 104, _BINPUT, 0x80, 0x82):  # BININT1 BINGET BINPUT PROTO EXT1
        return 1
    if code in (77, 0x83):  # BININT2 EXT2
        return 2
    if code in (74, 106, _LONG_BINPUT, 0x84):  # BININT LONG_BINGET LONG_BINPUT EXT4
        return 4
    if code in (71, 0x95):  # BINFLOAT FRAME
        return 8
    if code in (85, 67, 0x8C, 0x8A):  # SHORT_BINSTRING SHORT_BINBYTES SHORT_BINUNICODE LONG1
        return -1
    if code in (84, 66, 88, 0x8B):  # BINSTRING BINBYTES BINUNICODE LONG4
        return -4
    if code in (0x8D, 0x8E, 0x96):  # BINUNICODE8 BINBYTES8 BYTEARRAY8
        return -8
    if code in (73, 76, 83, 86, 70, 80, 103, _PUT):  # INT LONG STRING UNICODE FLOAT PERSID GET PUT
        return -100
    if code in (99, 105):  # GLOBAL INST
        return -200
    return 0


cdef uint64_t _number(const uint8_t* at, uint64_t size) noexcept nogil:
    cdef uint64_t value = 0
    memcpy(&value, at, size)  # little-endian, as every machine that we run on is
    return value


cdef uint64_t _line_bytes(const uint8_t* at, uint64_t left) noexcept nogil:
    cdef const uint8_t* end = <const uint8_t*>memchr(at, 10, left)
    return left if end == NULL else <uint64_t>(end - at) + 1


cdef uint64_t _decimal(const uint8_t* at, uint64_t length) noexcept nogil:
    """The number in a line; the largest there is for a text that is none, which nobody writes."""
    cdef uint64_t value = 0, i = 0
    if length < 2 or length > 18:
        return <uint64_t>-1
    for i in range(length - 1):
        if at[i] < 48 or at[i] > 57:
            return <uint64_t>-1
        value = value * 10 + (at[i] - 48)
    return value


def first_odd_memo(bytes data not None):
    """Where a pickle remembers a value by a number that is not the next one at most; -1 where it never does."""
    cdef uint64_t size = PyBytes_GET_SIZE(data), at = 0, argument = 0, length = 0, known = 0, start = 0
    cdef int kind = 0, lines = 0
    cdef uint8_t code = 0
    cdef const uint8_t* bytes_ = <const uint8_t*>PyBytes_AS_STRING(data)
    while at < size:
        start, code = at, bytes_[at]
        at += 1
        if code == _STOP:
            return -1
        kind = _argument_bytes(code)
        argument = 0
        if kind <= -100:
            for lines in range(kind // -100):
                length = _line_bytes(bytes_ + at, size - at)
                if code == _PUT:
                    argument = _decimal(bytes_ + at, length)
                at += length
        else:
            length = -kind if kind < 0 else kind
            if size - at < length:
                return -1  # it ends in the middle, and Python says so
            if length:
                argument = _number(bytes_ + at, length)
            at += length
            if kind < 0:
                if size - at < argument:
                    return -1
                at += argument
        if code == _MEMOIZE:
            known += 1
        elif code in (_PUT, _BINPUT, _LONG_BINPUT):
            if argument > known:
                return start
            known += 1
    return -1
