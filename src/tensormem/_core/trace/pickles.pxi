"""Owns: the walk over the opcodes of a pickle that nobody vouches for, before Python reads it.

Python's unpickler makes room for whatever number a value is to be remembered by: ten bytes can ask for 64 GiB. Whoever
writes pickles counts from 0. And a key is hashed with all that it holds: five hundred bytes can name one value 2**60
times. Must not know: what is in the pickle.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memchr, memcpy
from libcpp.vector cimport vector

cdef enum:
    _PUT = 112  # p, with a decimal number and a newline
    _BINPUT = 113  # q, with a byte
    _LONG_BINPUT = 114  # r, with four bytes
    _MEMOIZE = 0x94  # the next number
    _STOP = 46
    _MOST_WEIGHT = 4096


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


cdef cppclass Machine:
    """How heavy the values of a pickle are, as its opcodes put them on the stack: of how many values a tuple is made,
    each counted as often as it is named. Python goes through all of them when a tuple is a key.
    """
    vector[uint64_t] stack
    vector[uint64_t] marks
    vector[uint64_t] memo

    void push(uint64_t weight):
        this.stack.push_back(weight)

    bint pop(uint64_t count):
        if this.stack.size() < count:
            return False
        this.stack.resize(this.stack.size() - count)
        return True

    bint pop_to_mark():
        if this.marks.empty() or this.marks.back() > this.stack.size():
            return False
        this.stack.resize(this.marks.back())
        this.marks.pop_back()
        return True

    bint make_tuple(uint64_t count):
        cdef uint64_t weight = 1, i = 0
        if this.stack.size() < count:
            return False
        for i in range(count):
            weight += this.stack[this.stack.size() - 1 - i]
        this.pop(count)
        this.push(weight)
        return True

    void put(uint64_t number):
        if this.memo.size() <= number:
            this.memo.resize(number + 1)
        if not this.stack.empty():
            this.memo[number] = this.stack.back()

    bint get(uint64_t number):
        if number >= this.memo.size():
            return False
        this.push(this.memo[number])
        return True

    bint step(uint8_t code, uint64_t argument):
        """False where the walk ends: Python refuses what comes, or it is no pickle."""
        cdef uint64_t count = 0
        if code == 40:  # MARK
            this.marks.push_back(this.stack.size())
            return True
        if code in (104, 106, 103):  # BINGET LONG_BINGET GET
            return this.get(argument)
        if code in (0x85, 0x86, 0x87):  # TUPLE1 TUPLE2 TUPLE3
            return this.make_tuple(code - 0x84)
        if code == 116:  # TUPLE
            if this.marks.empty() or this.marks.back() > this.stack.size():
                return False
            count = this.stack.size() - this.marks.back()
            this.marks.pop_back()
            return this.make_tuple(count)
        if code in (108, 100, 0x91):  # LIST DICT FROZENSET
            if not this.pop_to_mark():
                return False
            this.push(1)
            return True
        if code in (101, 117, 0x90, 49):  # APPENDS SETITEMS ADDITEMS POP_MARK
            return this.pop_to_mark()
        if code == 97:  # APPEND
            return this.pop(1)
        if code == 115:  # SETITEM
            return this.pop(2)
        if code == 48:  # POP
            if not this.marks.empty() and this.marks.back() == this.stack.size():
                this.marks.pop_back()
                return True
            return this.pop(1)
        if code == 50:  # DUP
            if this.stack.empty():
                return False
            this.push(this.stack.back())
            return True
        if code in (0x80, 0x95, _PUT, _BINPUT, _LONG_BINPUT, _MEMOIZE):  # PROTO FRAME
            return True
        if code in (78, 0x88, 0x89, 125, 93, 41, 0x8F) or _argument_bytes(code) != 0:
            # NONE, NEWTRUE, NEWFALSE, EMPTY_DICT, EMPTY_LIST, EMPTY_TUPLE, EMPTY_SET; numbers, text, bytes
            this.push(1)
            return code not in (99, 105, 80, 0x82, 0x83, 0x84)  # GLOBAL INST PERSID EXT1 EXT2 EXT4
        return False


def find_oddity(bytes data not None):
    """Where a pickle asks for more than it holds, and how: by a number to remember a value by that is not the next one at
    most, or a tuple of very many values. None where it never does.
    """
    cdef uint64_t size = PyBytes_GET_SIZE(data), at = 0, argument = 0, length = 0, known = 0, start = 0
    cdef int kind = 0, lines = 0
    cdef uint8_t code = 0
    cdef Machine machine
    cdef const uint8_t* bytes_ = <const uint8_t*>PyBytes_AS_STRING(data)
    while at < size:
        start, code = at, bytes_[at]
        at += 1
        if code == _STOP:
            return None
        kind = _argument_bytes(code)
        argument = 0
        if kind <= -100:
            for lines in range(kind // -100):
                length = _line_bytes(bytes_ + at, size - at)
                if code == _PUT or code == 103:
                    argument = _decimal(bytes_ + at, length)
                at += length
        else:
            length = -kind if kind < 0 else kind
            if size - at < length:
                return None  # it ends in the middle, and Python says so
            if length:
                argument = _number(bytes_ + at, length)
            at += length
            if kind < 0:
                if size - at < argument:
                    return None
                at += argument
        if code == _MEMOIZE:
            argument = known
        if code in (_MEMOIZE, _PUT, _BINPUT, _LONG_BINPUT):
            if argument > known:
                return start, "it numbers its values out of order"
            machine.put(argument)
            known += 1
        if not machine.step(code, argument):
            return None
        if not machine.stack.empty() and machine.stack.back() > _MOST_WEIGHT:
            return start, "it has a tuple of very many values"
    return None
