"""Owns: `QueuedAccess`, a copy or a fill by the CPU that a stream has yet to do, of memory whose owner is told of accesses.

When its turn comes the owners are told, the bytes are written, and the owners are told that it is over; whoever queued it
has long gone on. What fails then is the report's, and is raised by whoever waits for the bytes. An owner whose calls are
bound to one thread (`thread_bound`) is told of the beginning at once, on the thread of the caller. Must not know: which
stream it is, or who keeps the memory until it has passed.
"""
cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport uint64_t
from libcpp.utility cimport move

from tensormem._core.base cimport Driver, report_unraisable
from tensormem._core.failures cimport check
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native cimport Status, StreamId
from tensormem._core.native_host cimport host_driver


@cython.final
cdef class Bracket:
    """The access to one side: begun when its turn comes, or before, where that has to be on this thread."""

    cdef Tensor _tensor
    cdef str _mode
    cdef uint64_t _base
    cdef bint _begun

    def __init__(self):
        raise TypeError("made by the compiled core")

    cdef Accesses _accesses(self):
        return None if self._tensor.storage.is_direct() else self._tensor.storage.accesses

    cdef int begin_early(self) except -1:
        cdef Accesses accesses = self._accesses()
        if accesses is not None and getattr(accesses._owner, "thread_bound", False):
            self._base = accesses.begin(self._mode)
            self._begun = True
        return 0

    cdef uint64_t begin(self) except? 0:
        # The address of the first element.
        cdef Accesses accesses = self._accesses()
        cdef Storage storage = self._tensor.storage
        if accesses is None:
            return self._tensor.first
        if not self._begun:
            self._base = accesses.begin(self._mode)
            self._begun = True
        return self._base + (self._tensor.first - storage.address)

    cdef int end(self) except -1:
        # Not by way of what is open in the storage: that ends when it is closed, and this is under way until it is over.
        if self._begun:
            self._begun = False
            self._accesses().end(self._mode)
        return 0


cdef Bracket _bracket(Tensor tensor, str mode):
    cdef Bracket made = Bracket.__new__(Bracket)
    made._tensor = tensor
    made._mode = mode
    return made


@cython.final
cdef class QueuedAccess:
    """A copy, or a fill where there is a pattern and no source."""

    cdef Bracket _to
    cdef Bracket _source
    cdef bytes _pattern
    cdef TransferReport _report

    def __init__(self):
        raise TypeError("made by the compiled core")

    cdef int begin_early(self) except -1:
        self._to.begin_early()
        if self._source is not None:
            try:
                self._source.begin_early()
            except BaseException:
                self._to.end()
                raise
        return 0

    cdef int run(self) except -1:
        try:
            if self._source is None:
                _fill(<NativeDriver*>&host_driver(), self._to._tensor, self._to.begin(), 0, self._pattern, 0, _ANY)
            else:
                self._copy(self._to.begin())
        finally:
            self.end()
        return 0

    cdef int _copy(self, uint64_t to_first) except -1:
        cdef CopyPlan plan
        _plan(self._to._tensor, self._source._tensor, &plan, to_first, self._source.begin())
        _run_inline(plan)
        return 0

    cdef int end(self) except -1:
        try:
            if self._source is not None:
                self._source.end()
        finally:
            self._to.end()
        return 0


cdef bint _is_told_of(Tensor tensor):
    # Whether the owner has to be told of an access by the CPU, before and after.
    return not tensor.storage.is_direct() and tensor.storage.accesses is not None


cdef QueuedAccess _access(Tensor to, Tensor source, bytes pattern, TransferReport report):
    cdef QueuedAccess made = QueuedAccess.__new__(QueuedAccess)
    made._to = _bracket(to, "w")
    made._source = None if source is None else _bracket(source, "r")
    made._pattern = pattern
    made._report = report
    return made


cdef int _queue(QueuedAccess access, Driver driver, StreamId queue) except -1:
    cdef PyObject* argument = <PyObject*>access
    cdef Status status
    if driver.native.stream_is_inline(queue):
        access.run()
        return 0
    access.begin_early()
    Py_INCREF(access)
    with nogil:
        status = driver.native.launch_host(_run_access, <void*>argument, queue)
    if not status.ok():
        Py_DECREF(access)
        access.end()
    check(move(status))
    return 0


cdef void _run_access(void* argument) noexcept nogil:
    # When Python is going away its objects go with it.
    if interpreter_is_ending():
        return
    with gil:
        _run_and_drop(<PyObject*>argument)


cdef void _run_and_drop(PyObject* argument) noexcept:
    cdef QueuedAccess access = <QueuedAccess>argument
    Py_DECREF(access)
    try:
        access.run()
    except BaseException as error:
        access._report.fail(error)


def fill_in_turn(Tensor tensor not None, bytes pattern not None, Stream work not None,
                 TransferReport report not None):
    """Fill with the CPU, in the order of a stream, memory whose owner is told of the access."""
    _queue(_access(tensor, None, pattern, report), work.driver, work._id)
