# Owns: the C shape of the accesses to memory that is reached in brackets, for the other modules of this package.
from libc.stdint cimport uint64_t



cdef class Accesses(Ending):
    cdef tuple _locks  # one per mode of unplanned access, held while it is begun or ended
    cdef uint64_t[2] _holders  # by whether they only read
    cdef uint64_t[2] _bases
    cdef uint64_t[3] _open  # declared ones, by mode
    cdef uint64_t _unplanned
    cdef uint64_t _shift  # where the storage begins in the memory of the owner
    cdef bint _closed

    cdef object _lock(self, bint readonly)
    # Begins an access that nobody counts, and gives the address of the first byte; the other half ends it.
    cdef uint64_t begin(self, str mode) except? 0
    cdef int end(self, str mode) except -1
    # The same for a declared one, which ends with the memory at the latest.
    cdef uint64_t begin_planned(self, str mode) except? 0
    cdef int end_planned(self, str mode) except -1
    # One more, or one less, who holds the address without having declared it: the first begins, the last ends.
    cdef uint64_t join(self, bint readonly) except? 0
    cdef void leave(self, bint readonly) noexcept
    cdef void _leave(self, bint readonly) noexcept
    # Ends whatever is still open, and then lets the owner give the memory back; once.
    cdef int close(self) except -1
    cdef int _finish(self) except -1


# The accesses of memory whose owner offers the two brackets, or None.
cdef Accesses accesses_of(object owner)
# The same where that is known.
cdef Accesses bracketed_by(object owner)
