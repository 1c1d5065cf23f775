# cython: language_level=3, freethreading_compatible=True
"""Owns: budgets of physical memory as Python sees them: whoever wants pages asks one first."""
from libc.stdint cimport uint64_t
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast

from tensormem._core.native_pool cimport Budget as NativeBudget
from tensormem._core.native_pool cimport LocalBudget
from tensormem._core.sizes cimport size_of

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
        self.native = static_pointer_cast[NativeBudget, LocalBudget](make_shared[LocalBudget](size_of(limit)))

    def __init__(self, limit):
        pass  # it is whole already; the base, which cannot be made, has another one

    @property
    def limit(self):
        """In bytes. Lowered below what is used, nobody gets more until enough is back."""
        return self.made().limit()

    @limit.setter
    def limit(self, value):
        (<LocalBudget*>self.native.get()).set_limit(size_of(value))


cdef shared_ptr[NativeBudget] budget_or_limit(object budget, object physical_limit) except *:
    cdef uint64_t limit = 0x7FFFFFFFFFFFFFFF if physical_limit is None else size_of(physical_limit)
    if budget is None:
        return static_pointer_cast[NativeBudget, LocalBudget](make_shared[LocalBudget](limit))
    if physical_limit is not None:
        raise errors.InvalidArgument("give a budget or a physical limit, not both")
    if not isinstance(budget, Budget):
        raise errors.InvalidArgument(f"a budget is needed, not {type(budget).__name__}")
    (<Budget>budget).made()
    return (<Budget>budget).native
