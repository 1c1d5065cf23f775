# Owns: uses of storages, for the other modules of this package.
from tensormem._core.native cimport Access


# Waits for what a use by the CPU, now, must come after: work of other streams.
cdef int prepare_now(Storage storage, Access access) except -1
