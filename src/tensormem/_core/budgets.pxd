# Owns: the C shape of a budget of physical memory, for the other modules of this package.
from libcpp.memory cimport shared_ptr

from tensormem._core.native_pool cimport Budget as NativeBudget


cdef class Budget:
    cdef shared_ptr[NativeBudget] native
    cdef object __weakref__

    # An error, not a crash, where a subclass made itself around us.
    cdef NativeBudget* made(self) except NULL


# What admits the pages of a pool that was given a budget, or a physical limit of its own (None: no limit), not both.
cdef shared_ptr[NativeBudget] budget_or_limit(object budget, object physical_limit) except *
