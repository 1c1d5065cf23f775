"""Owns: one physical limit shared by tenants of this process, as Python sees it. `tensormem.pools.TenantPool` gives each
of them a pool.

Native code holds the tenants weakly: a callback may refer to its own tenant without a leak.
"""
import weakref

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint64_t
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast
from libcpp.utility cimport move

from tensormem._core.resource cimport Budget, budget_or_limit
from tensormem._core.construction cimport Construction, begin_construction, only_the_core_makes
from tensormem._core.base cimport Driver, report_unraisable, size_of
from tensormem._core.failures cimport check
from tensormem._core.hooks cimport python_failure
from tensormem._core.native cimport Status
from tensormem._core.native_budgets cimport TenantBudget as NativeTenant
from tensormem._core.native_budgets cimport TenantBudgets as NativeTenants
from tensormem._core.native_budgets cimport (
    GiveBackHook,
    TenantBudgetPtr,
    TenantCounters,
    TenantTerms,
    give_back_hook,
)
from tensormem._core.native_pool cimport Budget as NativeBudget

from tensormem.units import format_size


@cython.final
cdef class TenantBudget(ClaimableBudget):
    """One tenant's part of a limit: what it is guaranteed, what it may have at most, and what it uses.

    >>> from tensormem.pools import TenantPool
    >>> with TenantPool("64MiB") as models:
    ...     budget = models.register("llama", "1GiB", guaranteed="16MiB", maximum="32MiB").budget
    ...     budget.claim("8MiB")  # memory that is made elsewhere
    ...     budget.used, budget.guaranteed, budget.maximum
    ...     budget.give_back("8MiB")
    (8388608, 16777216, 33554432)
    """

    cdef TenantBudgetPtr _tenant

    @property
    def guaranteed(self):
        """The bytes that stay free for it while it does not use them."""
        return self._tenant.get().terms().guaranteed

    @property
    def maximum(self):
        """The most it may have; None: as much as there is."""
        return shown_maximum(self._tenant.get().terms().maximum)

    @property
    def priority(self):
        """Its weight when memory is short."""
        return self._tenant.get().terms().priority

    @property
    def peak(self):
        """The most it ever used."""
        return self._tenant.get().counters().peak

    @property
    def refusals(self):
        """How many of its claims found no room in the end."""
        return self._tenant.get().counters().refusals

    @property
    def times_asked(self):
        """How often `on_pressure` was called."""
        return self._tenant.get().counters().times_asked

    def set_terms(self, *, guaranteed=None, maximum=None, priority=None):
        """Change what is given; what is None stays. Refused as `register` refuses, with nothing changed."""
        cdef TenantTerms terms = self._tenant.get().terms()
        if guaranteed is not None:
            terms.guaranteed = size_of(guaranteed)
        if maximum is not None:
            terms.maximum = size_of(maximum)
        if priority is not None:
            terms.priority = priority_of(priority)
        check(self._tenant.get().set_terms(terms))

    def retire(self):
        """Claim nothing any more and be guaranteed nothing. What it uses counts until it is given back."""
        self._tenant.get().retire()


only_the_core_makes(TenantBudget, b"tenants come from TenantPool.register")


# Whoever needed the memory is not to blame for a callback of somebody else, so it goes on without. What is no ordinary
# exception, such as a KeyboardInterrupt, ends the claim instead.
cdef void _call(object function, uint64_t wanted, Status* status) noexcept:
    try:
        function(wanted)
    except Exception as error:
        report_unraisable(error, function)
    except BaseException as error:
        status[0] = python_failure(<PyObject*>error, "a pressure callback was interrupted", wanted)


cdef void _evict_tenant(PyObject* held, uint64_t wanted, Status* status) noexcept with gil:
    tenant = (<object>held)()
    if tenant is not None:
        _call((<TenantBudget>tenant).on_pressure, wanted, status)


@cython.final
cdef class TenantBudgets:
    """The limit that tenants share. It can change while they run."""

    cdef shared_ptr[NativeTenants] _native
    cdef readonly Budget budget
    cdef Construction _construction
    cdef object __weakref__

    def __cinit__(self, limit, Budget budget=None, Driver driver=None, int32_t device=0):
        cdef shared_ptr[NativeBudget] larger
        if budget is not None or driver is not None:
            larger = budget_or_limit(budget, None, driver, device)
        self._native = make_shared[NativeTenants](size_of(limit), larger)
        self.budget = budget

    def __init__(self, limit, Budget budget=None, Driver driver=None, int32_t device=0):
        begin_construction(self._construction, self)

    def register(self, *, guaranteed=0, maximum=None, priority=1, on_pressure=None):
        """A new tenant. `on_pressure(wanted)` is asked to give memory back, without any lock, in the thread that needs
        the memory; after the idle pages of its pools, which go without asking.
        """
        cdef TenantBudget tenant = TenantBudget.__new__(TenantBudget)
        cdef TenantTerms terms
        cdef GiveBackHook evict
        terms.guaranteed = size_of(guaranteed)
        terms.maximum = maximum_of(maximum)
        terms.priority = priority_of(priority)
        check_callback("on_pressure", on_pressure)
        tenant.on_pressure = on_pressure
        context = weakref.ref(tenant)
        if on_pressure is not None:
            evict = give_back_hook(<PyObject*>context, _evict_tenant)
        check(self._native.get().add(terms, evict, &tenant._tenant))
        tenant.native = static_pointer_cast[NativeBudget, NativeTenant](tenant._tenant)
        return tenant

    @property
    def limit(self):
        """In bytes. Not below what is guaranteed; lowered below what is used, tenants are asked to give back."""
        return self._native.get().limit()

    @limit.setter
    def limit(self, value):
        cdef uint64_t limit = size_of(value)
        cdef Status status
        with nogil:
            status = self._native.get().set_limit(limit)
        check(move(status))

    def relieve(self, nbytes):
        """Ask tenants to give back `nbytes` of what they use beyond their guarantees; says how much came back."""
        cdef uint64_t wanted = size_of(nbytes)
        cdef uint64_t before = self._native.get().totals().used
        cdef uint64_t after
        cdef Status status
        with nogil:
            status = self._native.get().relieve(wanted)
        check(move(status))
        after = self._native.get().totals().used
        return before - after if after < before else 0

    @property
    def used(self):
        """What all of them use: exactly the sum."""
        return self._native.get().totals().used

    @property
    def peak(self):
        """The most they ever used together."""
        return self._native.get().totals().peak

    @property
    def guaranteed(self):
        """What they are guaranteed together."""
        return self._native.get().guaranteed()

    @property
    def refusals(self):
        """How many claims found no room in the end."""
        return self._native.get().totals().refusals

    @property
    def times_asked(self):
        """How often anybody was asked to give back."""
        return self._native.get().totals().times_asked

    def _is_valid(self):
        return self._native.get().is_valid()

    def __repr__(self):
        return f"<TenantBudgets: {format_size(self.used)} of {format_size(self.limit)}>"
