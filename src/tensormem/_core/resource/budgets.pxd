# Owns: the C shape of a budget of physical memory, for the other modules of this package.
from libc.stdint cimport int32_t
from libcpp.memory cimport shared_ptr

from tensormem._core.construction cimport Construction
from tensormem._core.base cimport Driver
from tensormem._core.native cimport Budget as NativeBudget
from tensormem._core.native cimport BudgetCounts


cdef class Budget:
    cdef shared_ptr[NativeBudget] native
    cdef Construction _construction
    cdef object __weakref__

    # An error, not a crash, where a subclass made itself around us.
    cdef NativeBudget* made(self) except NULL


cdef class AllocationLimit(Budget):
    cdef BudgetCounts _counts(self) except *


# What admits the pages of a pool on a device of a driver: the budget it was given, or a physical limit of its own (None:
# no limit) inside the limits that are in force there.
cdef shared_ptr[NativeBudget] budget_or_limit(object budget, object physical_limit, Driver driver,
                                              int32_t device) except *
# What is charged for pages that are made by hand: `tally`, which counts them, and the limits that are in force there.
cdef shared_ptr[NativeBudget] tallied_limits(shared_ptr[NativeBudget] tally, Driver driver, int32_t device) except *
