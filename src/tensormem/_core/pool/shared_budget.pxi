"""Owns: a process's part in a budget that several processes share, as Python sees it.

Must not know: how descriptors travel; `tensormem.pools` does that.
"""
import os
import weakref
from typing import NamedTuple

from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t
from libcpp.memory cimport static_pointer_cast
from libcpp.string_view cimport string_view
from libcpp.utility cimport move

from tensormem._core.failures cimport check
from tensormem._core.hooks cimport python_failure
from tensormem._core.native cimport Status
from tensormem._core.native_budgets cimport (
    GiveBackHook,
    LedgerHooks,
    LedgerTable,
    LedgerTablePtr,
    LedgerTerms,
    Participant as NativeParticipant,
    SharedLedger,
    SharedLedgerPtr,
    give_back_hook,
    kLedgerJobBytes,
    kLedgerNameBytes,
)
from tensormem._core.native_pool cimport Budget as NativeBudget
from tensormem._core.base cimport report_unraisable, size_of

from tensormem import errors
from tensormem.units import format_size


class Participant(NamedTuple):
    """One process in a shared budget, as all others see it.

    >>> from tensormem.pools import SharedBudget
    >>> with SharedBudget.create("1GiB", name="server") as budget:
    ...     budget.participants()[0].name
    'server'
    """

    name: str
    pid: int
    used: int
    peak: int
    guaranteed: int
    maximum: int | None
    priority: int
    asked: int
    times_asked: int
    job: str = ""
    job_limit: int | None = None


cdef object _participant(const NativeParticipant& raw):
    return Participant(
        (<bytes>raw.name).decode("utf-8", "replace"), raw.pid, raw.used, raw.peak, raw.guaranteed,
        shown_maximum(raw.maximum), raw.priority, raw.asked_bytes, raw.times_asked,
        (<bytes>raw.job).decode("utf-8", "replace"), shown_maximum(raw.job_limit))


# These run in the thread that hears the others, or in one that needs memory itself.
cdef void _evict(PyObject* held, uint64_t wanted, Status* status) noexcept with gil:
    budget = (<object>held)()
    if budget is not None:
        _call_hook((<SharedBudget>budget).on_pressure, wanted, status)


cdef void _give_idle(PyObject* held, uint64_t wanted, Status* status) noexcept with gil:
    budget = (<object>held)()
    if budget is not None:
        _call_hook((<SharedBudget>budget).on_idle, wanted, status)


cdef void _call_hook(object function, uint64_t wanted, Status* status) noexcept:
    try:
        function(wanted)
    except BaseException as error:
        report_unraisable(error, function)
        if not isinstance(error, Exception):
            status[0] = python_failure(<PyObject*>error, "a pressure callback was interrupted", wanted)


cdef class SharedBudget(ClaimableBudget):
    """See `tensormem.pools.SharedBudget`, which also travels to other processes."""

    cdef SharedLedgerPtr _ledger
    cdef readonly str name
    cdef readonly object on_idle

    def __init__(self):
        raise TypeError("make one with SharedBudget.create(limit), or join one with SharedBudget.attach(fd)")

    @classmethod
    def create(cls, limit, *, name=None, guaranteed=0, maximum=None, priority=1, on_pressure=None, patience=1.0,
               job=None, job_limit=None, on_idle=None):
        """A new budget of `limit` bytes, with this process as its first participant; the rest as for `attach`."""
        cdef uint64_t most = size_of(limit)
        cdef LedgerTablePtr table
        check(LedgerTable.create(most, &table))
        return _join(cls, table, name, guaranteed, maximum, priority, on_pressure, patience, job, job_limit,
                     on_idle)

    @classmethod
    def attach(cls, fd, *, name=None, guaranteed=0, maximum=None, priority=1, on_pressure=None, patience=1.0,
               job=None, job_limit=None, on_idle=None):
        """Join the budget behind a file descriptor, which stays the caller's.

        `on_pressure(wanted)` is called in a thread of its own when another process needs memory: it gives back what it
        can. Without it this process is asked only for what nobody uses: its pools give that back by themselves, and
        `on_idle(wanted)` what they do not know of. A claim waits up to `patience` seconds for those it asked. All
        participants of one `job` may use `job_limit` bytes together.
        """
        cdef LedgerTablePtr table
        cdef int descriptor = _descriptor(fd)
        check(LedgerTable.attach(descriptor, &table))
        return _join(cls, table, name, guaranteed, maximum, priority, on_pressure, patience, job, job_limit,
                     on_idle)

    @staticmethod
    def look(fd):
        """Everybody who takes part in the budget behind a file descriptor, without taking part in it."""
        cdef LedgerTablePtr table
        cdef int descriptor = _descriptor(fd)
        check(LedgerTable.attach(descriptor, &table))
        table.get().reap_dead()
        found = table.get().participants()
        return [_participant(found[i]) for i in range(found.size())]

    @property
    def fd(self):
        """The file descriptor to hand over; the budget keeps it open."""
        return self._joined().fd()

    def fileno(self):
        """The same as `fd`, for whoever takes files."""
        return self._joined().fd()

    @property
    def limit(self):
        """What all participants may use together, in bytes. Any of them can change it; not below what is guaranteed."""
        return self._joined().shared_limit()

    @limit.setter
    def limit(self, value):
        cdef uint64_t limit = size_of(value)
        cdef Status status
        cdef SharedLedger* ledger = self._joined()
        with nogil:
            status = ledger.set_limit(limit)
        check(move(status))

    @property
    def guaranteed(self):
        """The bytes that stay free for this process while it does not use them."""
        return self._joined().terms().guaranteed

    @property
    def maximum(self):
        """The most that this process may have; None: as much as there is."""
        return shown_maximum(self._joined().terms().maximum)

    @property
    def priority(self):
        """The weight of this process when memory is short."""
        return self._joined().terms().priority

    @property
    def job(self):
        """The job that this process works for; None for none."""
        return (<bytes>self._joined().terms().job).decode() or None

    @property
    def job_limit(self):
        """What all participants of the job may use together; None: as much as there is."""
        return shown_maximum(self._joined().terms().job_limit)

    @property
    def peak(self):
        """The most that this process ever had of it."""
        return self._joined().peak()

    def participants(self):
        """Everybody who lives, with what they use. The share of who has died is returned first."""
        self._check_open()
        found = self._joined().participants()
        return [_participant(found[i]) for i in range(found.size())]

    @property
    def used_by_all(self):
        """What all participants use together."""
        return sum(each.used for each in self.participants())

    @property
    def closed(self):
        """Whether this process is no participant: it closed the budget, or was forked from one that had it."""
        return self._joined().has_left()

    def close(self):
        """Leave the budget. `TenantInUse` while something of it is used. Once or many times."""
        cdef Status status
        if self.closed:
            return
        if self.used:
            raise errors.TenantInUse(self.name, self.used)
        with nogil:
            status = self._ledger.get().leave()
        check(move(status))

    cdef SharedLedger* _joined(self) except NULL:
        self.made()
        return self._ledger.get()

    cdef int _check_open(self) except -1:
        if self._joined().has_left():
            raise errors.UseAfterRelease(0, what="this process is no participant: it left, or was forked from one; attach")
        return 0

    def __enter__(self):
        self._check_open()
        return self

    def __exit__(self, *failure):
        self.close()

    def __dealloc__(self):
        # The last share may stop a thread that waits for the GIL.
        if self._claimed and self._ledger.get() is not NULL:
            self._ledger.get().give_back(self._claimed)
            self._claimed = 0
        self.native.reset()
        with nogil:
            self._ledger.reset()

    def __repr__(self):
        if self.closed:
            return f"<SharedBudget {self.name!r}, closed>"
        return (f"<SharedBudget {self.name!r}: {format_size(self.used)} here, {format_size(self.used_by_all)} of "
                f"{format_size(self.limit)} in all>")


cdef int _descriptor(object fd) except -1:
    number = fd.fileno() if hasattr(fd, "fileno") else fd
    if not isinstance(number, int) or not 0 <= number < 2**31:
        raise errors.InvalidArgument(f"a file descriptor is needed, not {fd!r:.80}")
    return number


cdef object _join(object cls, LedgerTablePtr table, object name, object guaranteed, object maximum, object priority,
                  object on_pressure, object patience, object job, object job_limit, object on_idle):
    cdef SharedBudget budget = cls.__new__(cls)
    cdef LedgerTerms terms
    cdef LedgerHooks hooks
    cdef bytes text
    terms.guaranteed = size_of(guaranteed)
    terms.maximum = maximum_of(maximum)
    terms.priority = priority_of(priority)
    terms.job = b"" if job is None else _text("a job", job, kLedgerJobBytes)
    terms.job_limit = maximum_of(job_limit)
    check_callback("on_pressure", on_pressure)
    check_callback("on_idle", on_idle)
    if not isinstance(patience, (int, float)) or not 0 <= patience <= 86400:
        raise errors.InvalidArgument(f"patience is a number of seconds from 0 to 86,400, not {patience!r:.80}")
    terms.patience_nanoseconds = <uint64_t>(patience * 1e9)
    text = _text("a name", f"process {os.getpid()}" if name is None else name, kLedgerNameBytes)
    budget.name = text.decode()
    budget.on_pressure = on_pressure
    budget.on_idle = on_idle
    context = weakref.ref(budget)
    if on_pressure is not None:
        hooks.evict = give_back_hook(<PyObject*>context, _evict)
    if on_idle is not None:
        hooks.idle = give_back_hook(<PyObject*>context, _give_idle)
    check(SharedLedger.join(table, string_view(<const char*>text, len(text)), terms, hooks, &budget._ledger))
    budget.native = static_pointer_cast[NativeBudget, SharedLedger](budget._ledger)
    return budget


cdef bytes _text(str what, object value, size_t most):
    if not isinstance(value, str):
        raise errors.InvalidArgument(f"{what} is text, not {type(value).__name__}")
    text = value.encode("utf-8", "replace")
    if <size_t>len(text) > most or b"\0" in text:
        raise errors.InvalidArgument(f"{what} has at most {most} bytes and no zero: {value!r:.80}")
    return text
