"""Owns: budgets of physical memory as Python sees them: whoever wants pages asks one first."""
from libc.stdint cimport int32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast
from libcpp.utility cimport move
from libcpp.vector cimport vector

from tensormem._core.construction cimport begin_construction
from tensormem._core.base cimport Driver, size_of
from tensormem._core.native cimport Budget as NativeBudget
from tensormem._core.native cimport BudgetCounts, Code, LocalBudget

from tensormem import errors
from tensormem.units import format_size


cdef class Budget:
    """What pools ask for physical memory. See `PhysicalLimit` for the simplest one."""

    def __init__(self):
        raise TypeError("a budget is one of its kinds, for example tensormem.pools.PhysicalLimit")

    @property
    def limit(self):
        """In bytes."""
        return self.made().limit()

    @property
    def used(self):
        """The bytes that pools have of it now, those in their caches included."""
        return self.made().used()

    cdef NativeBudget* made(self) except NULL:
        if self.native.get() is NULL:
            raise errors.InvalidArgument(f"this {type(self).__name__} was never made: its class did not call ours")
        return self.native.get()

    def __repr__(self):
        return f"<{type(self).__name__}: {format_size(self.used)} of {format_size(self.limit)}>"


cdef class PhysicalLimit(Budget):
    """One limit for all pools that are given it, in this process. It can change at any time.

    >>> from tensormem.pools import PhysicalLimit, VirtualMemoryPool
    >>> limit = PhysicalLimit("8MiB")
    >>> with VirtualMemoryPool("1GiB", budget=limit) as first, VirtualMemoryPool("1GiB", budget=limit) as second:
    ...     address = first.allocate(0, "6MiB")
    ...     second.allocate(0, "4MiB")
    Traceback (most recent call last):
    ...
    tensormem.errors.OutOfPhysicalMemory: ...
    """

    def __cinit__(self, limit):
        self.native = static_pointer_cast[NativeBudget, LocalBudget](
            make_shared[LocalBudget](size_of(limit), Code.out_of_physical_memory))

    def __init__(self, limit):
        begin_construction(self._construction, self)

    @property
    def limit(self):
        """In bytes. Lowered below what is used, nobody gets more until enough is back."""
        return self.made().limit()

    @limit.setter
    def limit(self, value):
        (<LocalBudget*>self.native.get()).set_limit(size_of(value))


cdef uint64_t _UNLIMITED = 0x7FFFFFFFFFFFFFFF


cdef class AllocationLimit(Budget):
    """A limit on what is allocated, of every kind of memory, that also counts; see `tensormem.limit`. None: no limit."""

    def __cinit__(self, limit=None, *arguments, **options):
        cdef uint64_t most = _UNLIMITED if limit is None else size_of(limit)
        cdef vector[shared_ptr[NativeBudget]] nothing
        self.native = static_pointer_cast[NativeBudget, LocalBudget](
            make_shared[LocalBudget](most, Code.out_of_budget, nothing, <cbool>True))

    def __init__(self, limit=None):
        begin_construction(self._construction, self)

    @property
    def limit(self):
        """In bytes; None without a limit. Lowered below what is used, nobody gets more until enough is free."""
        cdef uint64_t limit = self.made().limit()
        return None if limit == _UNLIMITED else limit

    @limit.setter
    def limit(self, value):
        (<LocalBudget*>self.made()).set_limit(_UNLIMITED if value is None else size_of(value))

    @property
    def remaining(self):
        """The bytes that are left; None without a limit."""
        limit = self.limit
        return None if limit is None else max(0, limit - self.used)

    @property
    def peak_bytes(self):
        """The most that was used at once."""
        return self._counts().peak_bytes

    @property
    def total_bytes(self):
        """The bytes of all allocations so far."""
        return self._counts().total_bytes

    @property
    def total_count(self):
        """How many allocations there were; pages that an elastic pool takes at once count as one."""
        return self._counts().total_count

    cdef BudgetCounts _counts(self) except *:
        return (<LocalBudget*>self.made()).counts()

    def __repr__(self):
        limit = self.limit
        return f"<{type(self).__name__}: {format_size(self.used)} of {'any' if limit is None else format_size(limit)}>"


cdef object _in_force = None


def install_limits(in_force):
    """Called once by `tensormem.mr`: gives the budgets that are in force on a device of a driver, outermost first."""
    global _in_force
    _in_force = in_force


cdef vector[shared_ptr[NativeBudget]] _limits_in_force(Driver driver, int32_t device) except *:
    cdef vector[shared_ptr[NativeBudget]] found
    for each in () if _in_force is None else _in_force(driver, device):
        (<Budget?>each).made()
        found.push_back((<Budget>each).native)
    return found


cdef shared_ptr[NativeBudget] tallied_limits(shared_ptr[NativeBudget] tally, Driver driver, int32_t device) except *:
    cdef vector[shared_ptr[NativeBudget]] larger = _limits_in_force(driver, device)
    larger.push_back(tally)
    return static_pointer_cast[NativeBudget, LocalBudget](
        make_shared[LocalBudget](_UNLIMITED, Code.out_of_physical_memory, move(larger), <cbool>False))


cdef shared_ptr[NativeBudget] budget_or_limit(object budget, object physical_limit, Driver driver,
                                              int32_t device) except *:
    cdef uint64_t limit = _UNLIMITED if physical_limit is None else size_of(physical_limit)
    cdef vector[shared_ptr[NativeBudget]] larger
    if budget is None:
        larger = _limits_in_force(driver, device)
        return static_pointer_cast[NativeBudget, LocalBudget](
            make_shared[LocalBudget](limit, Code.out_of_physical_memory, move(larger), <cbool>False))
    if physical_limit is not None:
        raise errors.InvalidArgument("give a budget or a physical limit, not both")
    if not isinstance(budget, Budget):
        raise errors.InvalidArgument(f"a budget is needed, not {type(budget).__name__}")
    (<Budget>budget).made()
    return (<Budget>budget).native
