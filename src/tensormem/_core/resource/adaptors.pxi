"""Owns: the adaptors that change or watch what passes: limits, statistics, alignment, prefetching, faults, retries, pressure.

Each wraps an `upstream_mr`, owns a share of it, and forwards what it does not change.
"""
cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast
from libcpp.utility cimport move

from tensormem._core.construction cimport begin_construction, only_the_core_makes
from tensormem._core.failures cimport check
from tensormem._core.hooks cimport level_callback, python_failure, retry_callback
from tensormem._core.native cimport (
    AlignedResourceAdaptor as NativeAligned,
    AllocRequest,
    FailureCallbackResourceAdaptor as NativeFailureCallback,
    FaultInjectionPlan,
    FaultInjectionResourceAdaptor as NativeFaultInjection,
    LimitingResourceAdaptor as NativeLimiting,
    PrefetchResourceAdaptor as NativePrefetch,
    PressureMarks,
    PressureResourceAdaptor as NativePressure,
    Resource,
    ScopeCounters,
    StatisticsResourceAdaptor as NativeStatistics,
    Status,
)
from tensormem._core.base cimport alignment_of, refuse, size_of

import weakref
from typing import NamedTuple

from tensormem import errors
from tensormem.units import format_size


cdef class LimitingResourceAdaptor(DeviceMemoryResource):
    """A budget: what is asked for and not yet free stays within `allocation_limit`, exactly, under threads too.

    >>> import tensormem as tm
    >>> mr = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), "1KiB")
    >>> block = mr.allocate(1000)
    >>> mr.allocate(1000)
    Traceback (most recent call last):
    ...
    tensormem.errors.OutOfBudget: ...
    >>> mr.allocation_limit = "1MiB"
    >>> other = mr.allocate(1000)
    """

    cdef shared_ptr[NativeLimiting] _limiting
    cdef readonly object budget

    def __init__(self, upstream_mr, allocation_limit=None, *, budget=None):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        if (allocation_limit is None) == (budget is None):
            raise errors.InvalidArgument("give an allocation limit, or a budget that others draw on too")
        if budget is None:
            budget = AllocationLimit(allocation_limit)
        elif not isinstance(budget, Budget):
            raise errors.InvalidArgument(f"a budget is needed, not {type(budget).__name__}")
        (<Budget>budget).made()
        self._limiting = make_shared[NativeLimiting](upstream._owner, (<Budget>budget).native)
        self.budget = budget
        self.adopt(static_pointer_cast[Resource, NativeLimiting](self._limiting), upstream.driver, upstream)

    @property
    def allocation_limit(self):
        """The budget in bytes. It may be set at any time; lowered below use, it refuses until enough has come back."""
        self._check_open()
        return self._limiting.get().limit()

    @allocation_limit.setter
    def allocation_limit(self, limit):
        self._check_open()
        self.budget.limit = size_of(limit)

    @property
    def allocated_bytes(self):
        """Bytes of the budget that are used: by blocks of this resource, and by whatever else draws on the budget."""
        return self.bytes_outstanding

    @property
    def reserved_bytes(self):
        """Bytes of the budget that `reserve` promised and nobody has used yet."""
        self._check_open()
        return self._limiting.get().promised()

    @property
    def remaining(self):
        """Bytes of the budget that are left."""
        self._check_open()
        return max(0, self.allocation_limit - self._limiting.get().charged())

    def reserve(self, nbytes):
        """Promise `nbytes` for several allocations to come; see `BudgetReservation`."""
        cdef uint64_t wanted = size_of(nbytes)  # asked once: it may be somebody's `__index__`
        cdef Status status
        self._check_open()
        status = self._limiting.get().promise(wanted)
        if not status.ok():
            refuse(self, move(status), tag_or_current(None))
        return BudgetReservation._make(self, wanted)

    def describe(self):
        """One line about this budget."""
        return (f"LimitingResourceAdaptor: {format_size(self.bytes_outstanding)} of "
                f"{format_size(self.allocation_limit)} used")


# Not cleared by the collector: its end needs the adaptor.
@cython.no_gc_clear
cdef class BudgetReservation:
    """A part of a budget, kept for several allocations. What is not used goes back on `close`.

    >>> import tensormem as tm
    >>> mr = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), "1MiB")
    >>> with mr.reserve("512KiB") as reservation:
    ...     block = reservation.allocate("300KiB")
    ...     reservation.remaining, mr.remaining
    (217088, 524288)
    >>> mr.remaining
    741376
    """

    cdef LimitingResourceAdaptor _mr
    cdef uint64_t _left
    cdef object __weakref__

    @staticmethod
    def _make(LimitingResourceAdaptor mr, nbytes):
        cdef BudgetReservation reservation = BudgetReservation.__new__(BudgetReservation)
        reservation._mr = mr
        reservation._left = nbytes
        return reservation

    def __dealloc__(self):
        if self._left and self._mr is not None:
            self._mr._limiting.get().withdraw_promise(self._left)

    @property
    def remaining(self):
        """Bytes that are still promised."""
        return self._left

    def allocate(self, nbytes, stream=None, *, alignment=None, tag=None):
        """A block that draws from the promise instead of from the common room."""
        cdef AllocRequest request
        cdef DeviceBlock block
        self._mr._request(&request, nbytes, stream, alignment, tag)
        if request.nbytes > self._left:
            raise errors.OutOfBudget(request.nbytes, self._mr.allocation_limit - self._left, self._left,
                                     self._mr.allocation_limit, what="the reservation has no room for it")
        block = DeviceBlock.__new__(DeviceBlock)
        self._left -= request.nbytes
        cdef Status status = self._mr._limiting.get().allocate_promised(request, &block.raw)
        if not status.ok():
            self._left += request.nbytes
            refuse(self._mr, move(status), request.tag)
        return self._mr._wrap(block)

    def close(self):
        """Give back what was not used. Closing twice is closing once."""
        cdef uint64_t left = self._left
        self._left = 0
        if left:
            self._mr._limiting.get().withdraw_promise(left)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()


only_the_core_makes(BudgetReservation, b"reservations come from LimitingResourceAdaptor.reserve()")


class Statistics(NamedTuple):
    """What passed through a `StatisticsResourceAdaptor`."""

    current_bytes: int
    current_count: int
    peak_bytes: int
    peak_count: int
    total_bytes: int
    total_count: int


cdef object _statistics(const ScopeCounters& counters):
    return Statistics(counters.current_bytes, counters.current_count, counters.peak_bytes, counters.peak_count,
                      counters.total_bytes, counters.total_count)


cdef class StatisticsResourceAdaptor(DeviceMemoryResource):
    """Counts what passes, with scopes.

    >>> import tensormem as tm
    >>> mr = tm.mr.StatisticsResourceAdaptor(tm.mr.HostMemoryResource())
    >>> block = mr.allocate(1000)
    >>> _ = mr.push_counters()
    >>> mr.deallocate(mr.allocate(500))
    >>> mr.pop_counters().peak_bytes, mr.allocation_counts.peak_bytes
    (500, 1500)
    """

    cdef shared_ptr[NativeStatistics] _statistics

    def __init__(self, upstream_mr):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        self._statistics = make_shared[NativeStatistics](upstream._owner)
        self.adopt(static_pointer_cast[Resource, NativeStatistics](self._statistics), upstream.driver, upstream)

    @property
    def allocation_counts(self):
        """The counters of the scope on top."""
        self._check_open()
        return _statistics(self._statistics.get().counters())

    def push_counters(self):
        """Start counting afresh; gives the counters so far."""
        self._check_open()
        return _statistics(self._statistics.get().push())

    def pop_counters(self):
        """End the scope on top and add it to the one below; gives what it counted."""
        cdef ScopeCounters ended
        self._check_open()
        check(self._statistics.get().pop(&ended))
        return _statistics(ended)

    def describe(self):
        """One line about what was counted."""
        counts = self.allocation_counts
        return (f"StatisticsResourceAdaptor: {counts.current_count} blocks, {format_size(counts.current_bytes)}, "
                f"peak {format_size(counts.peak_bytes)}")


cdef class AlignedResourceAdaptor(DeviceMemoryResource):
    """A floor under alignments: blocks of at least `alignment_threshold` bytes get at least `alignment`.

    >>> import tensormem as tm
    >>> mr = tm.mr.AlignedResourceAdaptor(tm.mr.HostMemoryResource(), 4096)
    >>> mr.allocate(100).ptr % 4096
    0
    """

    cdef readonly uint64_t alignment
    cdef readonly uint64_t alignment_threshold

    def __init__(self, upstream_mr, alignment=256, alignment_threshold=0):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        cdef uint64_t floor = alignment_of(alignment)
        if floor & (floor - 1) or floor > 1 << 30:
            raise errors.InvalidAlignment(alignment)
        self.alignment = floor
        self.alignment_threshold = size_of(alignment_threshold)
        self.adopt(
            static_pointer_cast[Resource, NativeAligned](
                make_shared[NativeAligned](upstream._owner, floor, self.alignment_threshold)),
            upstream.driver, upstream)

    def describe(self):
        """One line about this floor."""
        return f"AlignedResourceAdaptor: {self.alignment} bytes from {format_size(self.alignment_threshold)}"


cdef class PrefetchResourceAdaptor(DeviceMemoryResource):
    """Brings every block to `device` as it is handed out, so that its first use does not wait for pages (-1: the host).

    >>> import tensormem as tm
    >>> mr = tm.mr.PrefetchResourceAdaptor(tm.mr.HostMemoryResource())
    >>> mr.deallocate(mr.allocate("1MiB"))
    """

    cdef readonly int32_t device

    def __init__(self, upstream_mr, int32_t device=-1):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        self.device = device
        self.adopt(
            static_pointer_cast[Resource, NativePrefetch](make_shared[NativePrefetch](upstream._owner, device)),
            upstream.driver, upstream)


cdef class FaultInjectionResourceAdaptor(DeviceMemoryResource):
    """Refuses allocations on purpose, to see what your code does. A call fails when every given condition holds.

    `nth` and `every` count the allocations that the size and tag conditions let through; `probability` draws from `seed`
    and the number of the call alone, so a plan fails the same calls every time.

    >>> import tensormem as tm
    >>> mr = tm.mr.FaultInjectionResourceAdaptor(tm.mr.HostMemoryResource(), nth=2)
    >>> block = mr.allocate(64)
    >>> mr.allocate(64)
    Traceback (most recent call last):
    ...
    tensormem.errors.OutOfMemory: ...
    """

    cdef shared_ptr[NativeFaultInjection] _injection

    def __init__(self, upstream_mr, *, nth=None, every=None, min_bytes=0, max_bytes=None, tag=None, probability=1.0,
                 seed=0):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        cdef FaultInjectionPlan plan
        if not 0.0 <= probability <= 1.0:
            raise errors.InvalidArgument(f"a probability lies between 0 and 1, not at {probability}")
        plan.nth = _ordinal("nth", nth)
        plan.every = _ordinal("every", every)
        plan.min_bytes = size_of(min_bytes)
        if max_bytes is not None:
            plan.max_bytes = size_of(max_bytes)
        if tag is not None:
            plan.only_tag = True
            plan.tag = tag_id(tag)
        plan.probability = probability
        plan.seed = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
        self._injection = make_shared[NativeFaultInjection](upstream._owner, plan)
        self.adopt(static_pointer_cast[Resource, NativeFaultInjection](self._injection), upstream.driver, upstream)

    @property
    def matching_calls(self):
        """Allocations that the size and tag conditions let through."""
        self._check_open()
        return self._injection.get().matching_calls()

    @property
    def injected_faults(self):
        """Allocations that were refused."""
        self._check_open()
        return self._injection.get().injected_faults()

    def describe(self):
        """One line about the faults."""
        return f"FaultInjectionResourceAdaptor: {self.injected_faults} of {self.matching_calls} calls refused"


cdef uint64_t _ordinal(str name, object value) except? 0xFFFFFFFFFFFFFFFF:
    if value is None:
        return 0
    if not isinstance(value, int) or value < 1:
        raise errors.InvalidArgument(f"{name} counts from 1, not {value!r}")
    return value


cdef class FailureCallbackResourceAdaptor(DeviceMemoryResource):
    """Asks `callback(nbytes)` when there is no memory; while it returns true, tries again.

    >>> import tensormem as tm
    >>> budget = tm.mr.LimitingResourceAdaptor(tm.mr.HostMemoryResource(), 1000)
    >>> cache = [budget.allocate(800)]
    >>> def make_room(nbytes):
    ...     return bool(cache) and (cache.clear() or True)
    >>> mr = tm.mr.FailureCallbackResourceAdaptor(budget, make_room)
    >>> mr.allocate(500).nbytes
    500
    """

    cdef readonly object callback

    def __init__(self, upstream_mr, callback):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        if not callable(callback):
            raise errors.InvalidArgument(f"a callback is something to call, not {type(callback).__name__}")
        self.callback = callback
        context = weakref.ref(self)
        self.adopt(
            static_pointer_cast[Resource, NativeFailureCallback](
                make_shared[NativeFailureCallback](upstream._owner, retry_callback(<PyObject*>context, _retry))),
            upstream.driver, upstream)


# Native code holds the adaptors of these callbacks weakly: a callback may refer to its own adaptor without a leak, and
# whoever calls the native part keeps the Python part alive.
cdef void _retry(PyObject* held, uint64_t nbytes, cbool* again, Status* status) noexcept with gil:
    try:
        adaptor = (<object>held)()
        again[0] = adaptor is not None and bool(adaptor.callback(nbytes))
    except BaseException as error:
        status[0] = python_failure(<PyObject*>error, "the failure callback raised", nbytes)


_LEVELS = ("normal", "warn", "critical")


cdef class PressureResourceAdaptor(DeviceMemoryResource):
    """Watches how much is in use and calls `callback(level, used)` when the level changes.

    From `warn` bytes on the level is "warn", from `critical` on it is "critical", where the callback is asked again before
    each allocation until the level falls. Falling takes `hysteresis` bytes more than rising.

    >>> import tensormem as tm
    >>> heard = []
    >>> mr = tm.mr.PressureResourceAdaptor(
    ...     tm.mr.HostMemoryResource(), lambda level, used: heard.append(level), warn=1000, critical=2000)
    >>> block = mr.allocate(1500)
    >>> mr.level, heard
    ('warn', ['warn'])
    """

    cdef shared_ptr[NativePressure] _pressure
    cdef readonly object callback

    def __init__(self, upstream_mr, callback, *, warn, critical, hysteresis=0):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        cdef PressureMarks marks
        marks.warn = size_of(warn)
        marks.critical = size_of(critical)
        marks.hysteresis = size_of(hysteresis)
        if not callable(callback):
            raise errors.InvalidArgument(f"a callback is something to call, not {type(callback).__name__}")
        if not 0 < marks.warn <= marks.critical or marks.hysteresis >= marks.warn:
            raise errors.InvalidArgument(
                f"it takes 0 < warn <= critical and hysteresis < warn, not warn={marks.warn}, "
                f"critical={marks.critical}, hysteresis={marks.hysteresis}")
        self.callback = callback
        context = weakref.ref(self)
        self._pressure = make_shared[NativePressure](
            upstream._owner, marks, level_callback(<PyObject*>context, _level_changed))
        self.adopt(static_pointer_cast[Resource, NativePressure](self._pressure), upstream.driver, upstream)

    @property
    def level(self):
        """"normal", "warn" or "critical"."""
        self._check_open()
        return _LEVELS[<int>self._pressure.get().level()]

    def describe(self):
        """One line about the pressure."""
        return f"PressureResourceAdaptor: {self.level}, {format_size(self.bytes_outstanding)} in use"


cdef void _level_changed(PyObject* held, int level, uint64_t used, Status* status) noexcept with gil:
    try:
        adaptor = (<object>held)()
        if adaptor is not None:
            adaptor.callback(_LEVELS[level], used)
    except BaseException as error:
        status[0] = python_failure(<PyObject*>error, "the pressure callback raised", used)
