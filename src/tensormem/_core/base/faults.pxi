"""Owns: planned failures of system calls, for tests that fail every call of a scenario in turn."""
import errno as _errno

from libc.stdint cimport uint8_t, uint64_t
from libcpp cimport bool as cbool

from tensormem import errors


cdef extern from "driver/host/fault_plan.hpp" namespace "tensormem::host" nogil:
    cdef enum class SystemCall(uint8_t):
        any


cdef extern from "driver/host/fault_plan.hpp" namespace "tensormem::host::fault_plan" nogil:
    void native_arm "tensormem::host::fault_plan::arm" (SystemCall kind, uint64_t nth, int error)
    void native_disarm "tensormem::host::fault_plan::disarm" ()
    uint64_t native_calls_made "tensormem::host::fault_plan::calls_made" ()
    cbool native_has_fired "tensormem::host::fault_plan::has_fired" ()
    int kind_count()
    const char* kind_name(int kind)
    int kind_from_name(const char* name)


def kinds():
    """The names of the system calls that can be made to fail; "any" stands for all of them."""
    return [kind_name(kind).decode() for kind in range(kind_count())]


def arm(nth, kind="any", error=_errno.ENOMEM):
    """Fail the `nth` call of `kind` from now on, once, with the errno `error`. With nth=0 calls are only counted."""
    cdef bytes name = kind.encode()
    cdef int number = kind_from_name(name)
    if number < 0:
        raise errors.InvalidArgument(f"no system call is called {kind!r}; known are {', '.join(kinds())}")
    if nth < 0 or error <= 0:
        raise errors.InvalidArgument(f"nth={nth} and error={error} cannot be negative, and error cannot be 0")
    native_arm(<SystemCall><uint8_t>number, nth, error)


def disarm():
    """Let every call go ahead again."""
    native_disarm()


def calls_made():
    """How many calls of the planned kind were made since `arm`."""
    return native_calls_made()


def has_fired():
    """Whether the planned call has failed."""
    return native_has_fired()
