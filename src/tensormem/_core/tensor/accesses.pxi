"""Owns: the brackets around CPU access to memory whose owner asks for them (`begin_access`, `end_access`): that each
begin has its end, that undeclared ones share one and how many there were, and that the end of the memory comes last.

Must not know: what an access means, or who asks for one.
"""
from threading import RLock

cimport cython
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t

from tensormem._core.base cimport address_of, report_unraisable

from tensormem import errors


cdef tuple _UNPLANNED_MODES = ("rw", "r")


cdef inline int _number(str mode):
    return 0 if mode == "r" else 1 if mode == "w" else 2


# Not of a free list: that would take an object for finalised that another one was before it.
@cython.final
@cython.no_gc_clear
cdef class Accesses(Ending):
    """The accesses to the memory of one storage."""

    def __del__(self):
        # Not when it is deallocated: in a cycle of garbage the owner would have lost its attributes by then.
        try:
            self.close()
        except BaseException as error:
            report_unraisable(error, Accesses)

    cdef object _lock(self, bint readonly):
        # Made when they are first needed, which for most memory is never.
        if self._locks is None:
            made = (RLock(), RLock())
            with cython.critical_section(self):
                if self._locks is None:
                    self._locks = made
        return self._locks[readonly]

    cdef uint64_t begin(self, str mode) except? 0:
        cdef uint64_t base
        owner = self._owner
        if owner is None:
            raise errors.UseAfterFree(0, 0, what="the memory was given back")
        given = owner.begin_access(mode)
        try:
            base = address_of(given) + self._shift
            if base == self._shift:
                raise errors.InvalidArgument("an access was begun and gave no address")
        except BaseException:
            owner.end_access(mode)
            raise
        return base

    cdef int end(self, str mode) except -1:
        owner = self._owner
        if owner is not None:
            owner.end_access(mode)
        return 0

    cdef uint64_t begin_planned(self, str mode) except? 0:
        cdef uint64_t base = self.begin(mode)
        with cython.critical_section(self):
            self._open[_number(mode)] += 1
        return base

    cdef int end_planned(self, str mode) except -1:
        with cython.critical_section(self):
            if self._closed:
                return 0
            self._open[_number(mode)] -= 1
        self._owner.end_access(mode)
        return 0

    cdef uint64_t join(self, bint readonly) except? 0:
        # Whoever waits here does so for the first one's begin, which gives the address to all of them.
        with self._lock(readonly):
            if self._holders[readonly] == 0:
                self._bases[readonly] = self.begin(_UNPLANNED_MODES[readonly])
                self._unplanned += 1
            self._holders[readonly] += 1
            return self._bases[readonly]

    cdef void leave(self, bint readonly) noexcept:
        # Buffers are also let go in the middle of an exception, which has to wait while the owner is called.
        cdef PyObject *kind
        cdef PyObject *error
        cdef PyObject *trace
        PyErr_Fetch(&kind, &error, &trace)
        self._leave(readonly)
        PyErr_Restore(kind, error, trace)

    cdef void _leave(self, bint readonly) noexcept:
        try:
            with self._lock(readonly):
                if self._holders[readonly] == 0:  # finished meanwhile
                    return
                self._holders[readonly] -= 1
                if self._holders[readonly] == 0:
                    self._owner.end_access(_UNPLANNED_MODES[readonly])
        except BaseException as error:
            report_unraisable(error, self._owner)

    cdef int close(self) except -1:
        if self._closed or self._owner is None:
            return 0
        try:
            self._finish()
        finally:
            self._closed = True
            self.let_go()
        return 0

    cdef int _finish(self) except -1:
        if not (self._open[0] or self._open[1] or self._open[2] or self._holders[0] or self._holders[1]):
            return 0
        # Open at the end are only those who cannot say when they are done, and in garbage maps that were not unmapped.
        open_modes = [mode for mode in ("r", "w", "rw") for _ in range(self._open[_number(mode)])]
        open_modes += [_UNPLANNED_MODES[readonly] for readonly in range(2) if self._holders[readonly]]
        self._open[0] = self._open[1] = self._open[2] = 0
        self._holders[0] = self._holders[1] = 0
        failed = None
        for mode in open_modes:
            try:
                self._owner.end_access(mode)
            except BaseException as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return 0


cdef Accesses accesses_of(object owner):
    return bracketed_by(owner) if hasattr(owner, "begin_access") else None


cdef Accesses bracketed_by(object owner):
    cdef Accesses made = Accesses.__new__(Accesses)
    made._owner = owner
    return made
