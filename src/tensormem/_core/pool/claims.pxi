"""Owns: claims by hand, for memory that no pool of ours makes, and the checks that budgets of several owners share."""
import threading

from libc.stdint cimport uint32_t, uint64_t
from libcpp.utility cimport move

from tensormem._core.native cimport Status
from tensormem._core.native_pool cimport Budget as NativeBudget
from tensormem._core.base cimport refuse, size_of

from tensormem import errors

cdef uint32_t _HIGHEST_PRIORITY = 1_000_000


cdef class ClaimableBudget(Budget):
    """A budget that also counts memory made elsewhere: `claim` before it is made, `give_back` when it is gone."""

    def __cinit__(self):
        self._lock = threading.Lock()

    def __dealloc__(self):
        if self._claimed and self.native.get() is not NULL:
            self.native.get().give_back(self._claimed)

    def claim(self, nbytes):
        """Take `nbytes` of the budget, or raise `OutOfPhysicalMemory` and take nothing. May ask others to give back."""
        cdef uint64_t wanted = size_of(nbytes)
        cdef NativeBudget* budget = self.made()
        cdef Status status
        if wanted == 0:
            raise errors.InvalidSize(nbytes)
        with nogil:
            status = budget.claim(wanted)
        if not status.ok():
            refuse(self, move(status), 0)
        with self._lock:
            self._claimed += wanted

    def give_back(self, nbytes):
        """Return a part, or all, of what `claim` took. What pools have of the budget only they can give back."""
        cdef uint64_t returned = size_of(nbytes)
        cdef NativeBudget* budget = self.made()
        with self._lock:
            if returned > self._claimed:
                raise errors.InvalidSize(nbytes, what=f"{self._claimed:,} bytes were claimed by hand")
            self._claimed -= returned
        with nogil:
            budget.give_back(returned)

    @property
    def claimed(self):
        """The bytes taken by `claim` and not given back."""
        return self._claimed


cdef uint64_t maximum_of(object value) except? 0xFFFFFFFFFFFFFFFF:
    return _UNLIMITED if value is None else size_of(value)


cdef object shown_maximum(uint64_t value):
    return None if value == _UNLIMITED else value


cdef uint32_t priority_of(object value) except 0:
    if not isinstance(value, int) or not 1 <= value <= _HIGHEST_PRIORITY:
        raise errors.InvalidArgument(f"a priority is a number from 1 to {_HIGHEST_PRIORITY:,}, not {value!r:.80}")
    return value


cdef int check_callback(str name, object value) except -1:
    if value is not None and not callable(value):
        raise errors.InvalidArgument(f"{name} is something to call, not {type(value).__name__}")
    return 0
