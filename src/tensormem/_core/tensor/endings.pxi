"""Owns: `Ending`, the one end of memory that an owner keeps: its `release()` is called exactly once, directly, or by the
leaf of the resource stack that counts the memory, when every stream has passed.

Must not know: which memory it is, or who holds it.
"""
cimport cython
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.ref cimport PyObject

from tensormem._core.resource cimport DeviceBlock
from tensormem._core.base cimport report_unraisable

from tensormem import errors


# Subclasses give it a `__del__`. Not of a free list: that would take an object for finalised that another one was
# before it.
@cython.no_gc_clear
cdef class Ending:
    """The end of the memory of one storage."""

    def __init__(self):
        raise TypeError("made by a storage")

    cdef int attach(self, DeviceBlock block, PythonKindMemory* memory) except -1:
        # As long as the storage needs it, nobody can give the block back by hand.
        if not block._exports.add():
            raise errors.UseAfterFree(block.raw.generation, block.raw.address, what="the block is being given back")
        self._block = block
        self._memory = memory
        if memory is not NULL:
            memory.lend()
        return 0

    cdef int let_go(self) except -1:
        cdef DeviceBlock block = self._block
        if block is None:
            owner, self._owner = self._owner, None
            _release(owner)
            return 0
        self._block = None
        block._exports.remove()
        if self._memory is NULL:
            owner, self._owner = self._owner, None
            try:
                _release(owner)
            finally:
                _give_back(block)
            return 0
        self._going = True
        self._memory.hold(<PyObject*>self)
        self._memory = NULL
        try:
            _give_back(block)
        except (errors.NotSupported, errors.StreamMisuse):
            # Nothing can be asked of its streams: the driver is gone, or this is one of its host functions. The owner
            # knows what to do.
            owner, self._owner = self._owner, None
            _release(owner)
        finally:
            self._going = False
        error, self._error = self._error, None
        if error is not None:
            raise error
        return 0


cdef int _give_back(DeviceBlock block) except -1:
    # Another storage of the same memory may hold the block as well; the last one gives it back.
    if block._exports.count() == 0 and block._owned:
        block._mr.deallocate(block)
    return 0


cdef int _release(object owner) except -1:
    release = getattr(owner, "release", None)
    if release is not None:
        release()
    return 0


cdef void end_memory(PyObject* ending) noexcept with gil:
    # Blocks are also dropped in the middle of an exception, which has to wait while the owner is called.
    cdef PyObject *kind
    cdef PyObject *error
    cdef PyObject *trace
    PyErr_Fetch(&kind, &error, &trace)
    _end(<Ending>ending)
    PyErr_Restore(kind, error, trace)


cdef void _end(Ending ended) noexcept:
    owner, ended._owner = ended._owner, None
    try:
        _release(owner)
    except BaseException as error:
        if ended._going:
            ended._error = error
        else:
            report_unraisable(error, owner)
