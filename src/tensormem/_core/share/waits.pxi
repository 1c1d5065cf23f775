"""Owns: the native wait as the layers above use it: until a descriptor is ready, until a latch is opened, for a pause.

Each hears signals, lets the GIL go and ends with the process. Must not know: who waits, or for what.
"""
from libc.stdint cimport uint32_t, uint64_t
from libcpp.utility cimport move

from tensormem._core.base cimport timeout_of
from tensormem._core.failures cimport check
from tensormem._core.native cimport Status, Wait
from tensormem._core.native_share cimport NativeLatch, is_own_timeout, pollfd
from tensormem._core.native_share cimport wait_for_descriptors as native_wait_for_descriptors

from tensormem import errors

cdef enum:
    _MOST_DESCRIPTORS = 2


cdef bint _came(Status status) except -1:
    """Whether it ended well; False when the time was up."""
    if is_own_timeout(status):
        return False
    check(move(status))
    return True


def wait_for_descriptors(*watched, timeout=None):
    """Whether one of at most two (descriptor, events of `select.poll`) got ready within `timeout` seconds."""
    cdef pollfd polled[_MOST_DESCRIPTORS]
    cdef uint64_t most = timeout_of(timeout)
    cdef uint32_t count = 0
    cdef Status status
    if not 1 <= len(watched) <= _MOST_DESCRIPTORS:
        raise errors.InvalidArgument(f"one or two descriptors are waited for, not {len(watched)}")
    for fd, events in watched:
        polled[count].fd, polled[count].events, polled[count].revents = fd, events, 0
        count += 1
    with nogil:
        status = native_wait_for_descriptors(polled, count, Wait.of_caller(most))
    return _came(move(status))


cdef class Latch:
    """A door that is opened once, and at which any number of threads wait."""

    cdef NativeLatch _native

    @property
    def is_open(self):
        """Whether it was opened."""
        return self._native.is_open()

    def open(self):
        """Let everybody pass, now and later. Opening twice is harmless."""
        self._native.open()

    def wait(self, timeout=None):
        """Whether it was opened within `timeout` seconds."""
        cdef uint64_t most = timeout_of(timeout)
        cdef Status status
        with nogil:
            status = self._native.wait(Wait.of_caller(most))
        return _came(move(status))


def pause(seconds):
    """Wait that long: between two attempts at something that nobody can tell us about."""
    Latch().wait(seconds)
