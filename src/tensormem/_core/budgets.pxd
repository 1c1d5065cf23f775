# Owns: the C shape of a budget of physical memory, for the other modules of this package.
from libcpp.memory cimport shared_ptr

from tensormem._core.native_pool cimport Budget as NativeBudget


cdef class Budget:
    cdef shared_ptr[NativeBudget] native
    cdef object __weakref__
