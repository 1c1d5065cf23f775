# Owns: the declarations of the budgets of native/pool that several share, and of budget_hooks.hpp. No code.
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.string_view cimport string_view
from libcpp.vector cimport vector

from tensormem._core.native cimport Status
from tensormem._core.native_pool cimport Budget


cdef extern from "pool/tenant_budgets.hpp" namespace "tensormem" nogil:
    cdef cppclass GiveBackHook:
        pass
    cdef cppclass TenantTerms:
        uint64_t guaranteed
        uint64_t maximum
        uint32_t priority
    cdef cppclass TenantCounters:
        uint64_t used
        uint64_t peak
        uint64_t refusals
        uint64_t times_asked
    cdef cppclass TenantBudget(Budget):
        TenantTerms terms()
        TenantCounters counters()
        Status set_terms(const TenantTerms& terms)
        void retire()
    ctypedef shared_ptr[TenantBudget] TenantBudgetPtr
    cdef cppclass TenantBudgets:
        TenantBudgets(uint64_t limit, shared_ptr[Budget] larger)
        Status add(const TenantTerms& terms, GiveBackHook evict, TenantBudgetPtr* tenant)
        Status set_limit(uint64_t limit)
        Status relieve(uint64_t bytes)
        uint64_t limit()
        TenantCounters totals()
        uint64_t guaranteed()
        cbool is_valid()


cdef extern from "pool/ledger_table.hpp" namespace "tensormem" nogil:
    const size_t kLedgerNameBytes
    const size_t kLedgerJobBytes
    cdef cppclass Participant:
        string name
        string job
        uint32_t pid
        uint32_t priority
        uint64_t used
        uint64_t peak
        uint64_t guaranteed
        uint64_t maximum
        uint64_t asked_bytes
        uint64_t times_asked
        uint64_t job_limit
    cdef cppclass LedgerTable:
        @staticmethod
        Status create(uint64_t limit, shared_ptr[LedgerTable]* table)
        @staticmethod
        Status attach(int fd, shared_ptr[LedgerTable]* table)
        size_t reap_dead()
        vector[Participant] participants()
    ctypedef shared_ptr[LedgerTable] LedgerTablePtr


cdef extern from "pool/shared_ledger.hpp" namespace "tensormem" nogil:
    cdef cppclass LedgerTerms:
        uint64_t guaranteed
        uint64_t maximum
        uint32_t priority
        uint64_t patience_nanoseconds
        string job
        uint64_t job_limit
    cdef cppclass LedgerHooks:
        GiveBackHook idle
        GiveBackHook evict
    cdef cppclass SharedLedger(Budget):
        @staticmethod
        Status join(LedgerTablePtr table, string_view name, const LedgerTerms& terms, LedgerHooks hooks,
                    shared_ptr[SharedLedger]* ledger)
        Status leave()
        cbool has_left()
        Status set_limit(uint64_t limit)
        uint64_t shared_limit()
        uint64_t peak()
        vector[Participant] participants()
        int fd()
        const LedgerTerms& terms()
    ctypedef shared_ptr[SharedLedger] SharedLedgerPtr


cdef extern from "_core/budget_hooks.hpp" namespace "tensormem":
    ctypedef void (*GiveBackFunction)(PyObject*, uint64_t, Status*) noexcept
    GiveBackHook give_back_hook(PyObject* context, GiveBackFunction function)
