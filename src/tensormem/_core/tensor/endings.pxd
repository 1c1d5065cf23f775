# Owns: the C shape of the end of memory that an owner keeps, for the other modules of this package.
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t

from tensormem._core.native cimport AllocRequest, MemoryMaker, Status
from tensormem._core.resource cimport DeviceBlock


cdef extern from "_core/kind_hooks.hpp" namespace "tensormem":
    ctypedef void (*MakeFunction)(PyObject*, const AllocRequest*, PyObject**, uint64_t*, Status*) noexcept
    ctypedef void (*EndFunction)(PyObject*) noexcept
    cdef cppclass PythonKindMemory:
        void hold(PyObject* ending)
        void lend()
    cdef cppclass PythonMaker(MemoryMaker):
        PythonMaker(PyObject* context, MakeFunction make, EndFunction end)
        PythonKindMemory* made()


cdef class Ending:
    cdef object _owner  # None once it was let go
    cdef DeviceBlock _block  # what the memory is counted by, if a resource counts it
    cdef PythonKindMemory* _memory  # what the block's leaf ends by calling us; NULL where the leaf does it by itself
    cdef object _error  # what the owner's release raised while `let_go` was under way
    cdef bint _going

    # From now on the memory goes by way of the block's resource.
    cdef int attach(self, DeviceBlock block, PythonKindMemory* memory) except -1
    # Gives the memory back; once.
    cdef int let_go(self) except -1


# What a leaf calls when every stream has passed, with an `Ending`.
cdef void end_memory(PyObject* ending) noexcept with gil
