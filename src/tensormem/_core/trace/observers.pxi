"""Owns: the adaptors that look on: logging, tracking of what is outstanding, and the debug guard.

Must not know: who reads what they saw.
"""
import os
import sys

from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport uint8_t, uint64_t
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast
from libcpp.string_view cimport string_view
from libcpp.vector cimport vector

from tensormem._core.construction cimport Construction, begin_construction
from tensormem._core.failures cimport check
from tensormem._core.hooks cimport python_failure
from tensormem._core.native cimport Resource, Status, TagId, tag_text
from tensormem._core.native_observers cimport (
    CapturedStack,
    CaptureFunction,
    Code,
    CsvLogSink,
    CsvLogSinkOptions,
    DebugGuardOptions,
    DebugGuardResourceAdaptor as NativeDebugGuard,
    GuardFinding as NativeFinding,
    LoggingResourceAdaptor as NativeLogging,
    LogRecord as NativeRecord,
    LogSink as NativeSink,
    LogSinkPtr,
    MemoryLogSink,
    RingLogSink,
    TagTotal,
    TrackedBlock as NativeTracked,
    TrackedOrder,
    TrackingResourceAdaptor as NativeTracking,
    callback_sink,
    check_guard_options,
    class_name,
    guard_hooks,
    stack_hooks,
    stack_object,
)
from tensormem._core.resource cimport DeviceBlock, DeviceMemoryResource, upstream_of
from tensormem._core.base cimport size_of

from typing import NamedTuple

from tensormem import errors
from tensormem.units import format_size

_ACTIONS = ("allocate", "deallocate", "reap")
_STATES = ("live", "retired", "quarantined", "freed")
_DAMAGE = ("underflow", "overflow", "use after free")
_MOST_FRAMES = 64


# ---- Stacks ----

cdef PyObject* _capture() noexcept with gil:
    try:
        frame = sys._getframe()
    except ValueError:  # a thread without Python frames
        return NULL
    frames = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        frames.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    stack = tuple(frames)
    Py_INCREF(stack)
    return <PyObject*>stack


cdef tuple _stack_of(const CapturedStack& captured):
    cdef PyObject* stack = stack_object(captured)
    return () if stack is NULL else <tuple>stack


def format_stack(stack):
    """The text of a captured stack, the innermost call last; "" when none was captured."""
    import traceback

    frames = [(code.co_filename, line, code.co_name, None) for code, line in reversed(stack)]
    return "".join(traceback.StackSummary.from_list(frames).format())


# ---- Logging ----

class LogRecord(NamedTuple):
    """One call that passed a `LoggingResourceAdaptor`. `error` is the class of the failure, "" when it succeeded."""

    order: int
    timestamp_ns: int
    thread: int
    action: str
    device: int
    stream: int
    address: int
    nbytes: int
    tag: str
    generation: int
    state: str
    error: str
    what: str


cdef object _record(const NativeRecord& record):
    failed = record.code != Code.ok
    return LogRecord(
        record.order, record.timestamp_ns, record.thread, _ACTIONS[<uint8_t>record.action], record.device,
        record.stream, record.address, record.nbytes, _text(record.tag), record.generation,
        "" if failed else _STATES[<uint8_t>record.state], class_name(record.code).decode() if failed else "",
        record.what.decode())


cdef str _text(TagId tag):
    cdef string_view view = tag_text(tag)
    return view.data()[:view.size()].decode()


cdef class MemorySink:
    """Keeps every record in memory until it is cleared.

    >>> import tensormem as tm
    >>> sink = tm.mr.MemorySink()
    >>> mr = tm.mr.LoggingResourceAdaptor(tm.mr.HostMemoryResource(), sink=sink)
    >>> mr.deallocate(mr.allocate(64))
    >>> [record.action for record in sink.records]
    ['allocate', 'deallocate']
    """

    cdef shared_ptr[MemoryLogSink] _sink
    cdef Construction _construction

    def __cinit__(self):
        self._sink = make_shared[MemoryLogSink]()

    def __init__(self):
        begin_construction(self._construction, self)

    @property
    def records(self):
        """All records, by order number."""
        cdef vector[NativeRecord] taken = self._sink.get().snapshot()
        return [_record(taken[i]) for i in range(taken.size())]

    def clear(self):
        """Forget them."""
        self._sink.get().clear()

    def __len__(self):
        return self._sink.get().snapshot().size()


cdef class RingSink:
    """Keeps the last `capacity` records and counts those it lost.

    >>> import tensormem as tm
    >>> sink = tm.mr.RingSink(1)
    >>> mr = tm.mr.LoggingResourceAdaptor(tm.mr.HostMemoryResource(), sink=sink)
    >>> mr.deallocate(mr.allocate(64))
    >>> [record.action for record in sink.records], sink.overwritten
    (['deallocate'], 1)
    """

    cdef shared_ptr[RingLogSink] _sink
    cdef Construction _construction

    def __cinit__(self, capacity=65536):
        check(RingLogSink.make(size_of(capacity), &self._sink))

    def __init__(self, capacity=65536):
        begin_construction(self._construction, self)

    @property
    def records(self):
        """The records that are still there, by order number."""
        cdef vector[NativeRecord] taken = self._sink.get().snapshot()
        return [_record(taken[i]) for i in range(taken.size())]

    @property
    def overwritten(self):
        """How many records gave way to newer ones."""
        return self._sink.get().overwritten()

    def clear(self):
        """Forget them."""
        self._sink.get().clear()


cdef class CsvSink:
    """Writes RMM's log format to a file. An existing file is kept unless `overwrite` is set."""

    cdef shared_ptr[CsvLogSink] _sink
    cdef Construction _construction
    cdef readonly str path

    def __cinit__(self, path, *, bint overwrite=False):
        cdef CsvLogSinkOptions options
        options.overwrite = overwrite
        self.path = os.fspath(path)
        check(CsvLogSink.open(os.fsencode(path), options, &self._sink))

    def __init__(self, path, *, bint overwrite=False):
        begin_construction(self._construction, self)

    @property
    def skipped_records(self):
        """Records that the format has no row for: reaps and refused frees."""
        return self._sink.get().skipped_records()


cdef LogSinkPtr _sink_of(object sink) except *:
    cdef LogSinkPtr none
    if sink is None:
        return none
    if isinstance(sink, MemorySink):
        return static_pointer_cast[NativeSink, MemoryLogSink]((<MemorySink>sink)._sink)
    if isinstance(sink, RingSink):
        return static_pointer_cast[NativeSink, RingLogSink]((<RingSink>sink)._sink)
    if isinstance(sink, CsvSink):
        return static_pointer_cast[NativeSink, CsvLogSink]((<CsvSink>sink)._sink)
    if callable(sink):
        return callback_sink(<PyObject*>sink, _emit)
    raise errors.InvalidArgument(f"a sink is a MemorySink, RingSink, CsvSink, a function or None, not {sink!r}")


cdef void _emit(PyObject* sink, const NativeRecord* record, Status* status) noexcept with gil:
    try:
        (<object>sink)(_record(record[0]))
    except BaseException as error:
        status[0] = python_failure(<PyObject*>error, "the log sink raised", 0)


cdef class LoggingResourceAdaptor(DeviceMemoryResource):
    """One record for every allocate, deallocate and reap, whether it succeeds or fails. Logging never changes a result.

    The records go to `sink`: a `MemorySink`, `RingSink`, `CsvSink`, a function of yours, or None. `log_file_name` is short
    for `CsvSink(log_file_name)`.

    >>> import tensormem as tm
    >>> seen = []
    >>> mr = tm.mr.LoggingResourceAdaptor(tm.mr.HostMemoryResource(), sink=seen.append)
    >>> mr.deallocate(mr.allocate(64, tag="weights"))
    >>> [(record.action, record.tag) for record in seen]
    [('allocate', 'weights'), ('deallocate', 'weights')]
    """

    cdef shared_ptr[NativeLogging] _logging
    cdef readonly object sink

    def __init__(self, upstream_mr, log_file_name=None, *, sink=None):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        if log_file_name is not None:
            if sink is not None:
                raise errors.InvalidArgument("give a log_file_name or a sink, not both")
            sink = CsvSink(log_file_name)
        self._logging = make_shared[NativeLogging](upstream._owner, _sink_of(sink))
        self.sink = sink
        self.adopt(static_pointer_cast[Resource, NativeLogging](self._logging), upstream.driver, upstream)

    @property
    def dropped_records(self):
        """Records that the sink would not take."""
        self._check_open()
        return self._logging.get().dropped_records()

    def flush(self):
        """Bring everything logged so far to its destination."""
        self._check_open()
        check(self._logging.get().flush())

    def describe(self):
        """One line about the log."""
        return f"LoggingResourceAdaptor: to {type(self.sink).__name__}, {self.dropped_records} dropped"


# ---- Tracking ----

class OutstandingBlock(NamedTuple):
    """A block that was not given back, and where it came from. `stack` is text, "" when stacks are off."""

    ptr: int
    nbytes: int
    generation: int
    tag: str
    timestamp_ns: int
    stack: str


cdef class TrackingResourceAdaptor(DeviceMemoryResource):
    """Knows what is outstanding and who asked for it. A leak is what it still knows at the end.

    >>> import tensormem as tm
    >>> mr = tm.mr.TrackingResourceAdaptor(tm.mr.HostMemoryResource(), capture_stacks=True)
    >>> kept = mr.allocate(1000, tag="forgotten")
    >>> [(block.nbytes, block.tag) for block in mr.outstanding()]
    [(1000, 'forgotten')]
    """

    cdef shared_ptr[NativeTracking] _tracking
    cdef readonly bint capture_stacks

    def __init__(self, upstream_mr, capture_stacks=False):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        cdef CaptureFunction capture = NULL
        if capture_stacks:
            capture = _capture
        self.capture_stacks = bool(capture_stacks)
        self._tracking = make_shared[NativeTracking](upstream._owner, stack_hooks(capture))
        self.adopt(static_pointer_cast[Resource, NativeTracking](self._tracking), upstream.driver, upstream)

    def get_allocated_bytes(self):
        """Bytes that are outstanding."""
        self._check_open()
        return self._tracking.get().outstanding_bytes()

    def outstanding(self, *, bint oldest_first=False):
        """Every block that was not given back, the largest first unless told."""
        cdef vector[NativeTracked] blocks
        cdef size_t i
        self._check_open()
        self._tracking.get().outstanding(
            TrackedOrder.oldest_first if oldest_first else TrackedOrder.largest_first, &blocks)
        return [
            OutstandingBlock(blocks[i].block.address, blocks[i].block.nbytes, blocks[i].block.generation,
                             _text(blocks[i].block.tag), blocks[i].timestamp_ns,
                             format_stack(_stack_of(blocks[i].stack)))
            for i in range(blocks.size())
        ]

    def totals_by_tag(self):
        """{tag: (bytes, blocks)} of what is outstanding, the largest first."""
        cdef vector[TagTotal] totals
        cdef size_t i
        self._check_open()
        self._tracking.get().totals_by_tag(&totals)
        return {_text(totals[i].tag): (totals[i].nbytes, totals[i].count) for i in range(totals.size())}

    def get_outstanding_allocations_str(self):
        """The report of what is outstanding, as text; "" when nothing is."""
        lines = []
        for block in self.outstanding():
            lines.append(f"{block.ptr:#x}: {format_size(block.nbytes)}, tag {block.tag!r}, generation {block.generation}")
            if block.stack:
                lines.append(block.stack.rstrip())
        return "\n".join(lines)

    def log_outstanding_allocations(self):
        """Send the report to the logger "tensormem", as an error when something is outstanding."""
        import logging

        report = self.get_outstanding_allocations_str()
        if report:
            logging.getLogger("tensormem").error("outstanding allocations:\n%s", report)

    def describe(self):
        """One line about what is outstanding."""
        return f"TrackingResourceAdaptor: {format_size(self.get_allocated_bytes())} outstanding"


# ---- Debug guard ----

class GuardFinding(NamedTuple):
    """Damage that a `DebugGuardResourceAdaptor` found. `offset` counts from the first byte of the block."""

    kind: str
    generation: int
    ptr: int
    nbytes: int
    tag: str
    offset: int
    bad_bytes: int
    found: int
    expected: int
    allocated_at: str
    freed_at: str

    def __str__(self):
        lines = [f"{self.kind}: {self.bad_bytes} bytes from offset {self.offset} of block {self.generation} "
                 f"({self.nbytes} bytes at {self.ptr:#x}, tag {self.tag!r}): "
                 f"found {self.found:#04x} where {self.expected:#04x} was"]
        if self.allocated_at:
            lines += ["allocated at:", self.allocated_at.rstrip()]
        if self.freed_at:
            lines += ["given back at:", self.freed_at.rstrip()]
        return "\n".join(lines)


cdef object _finding(const NativeFinding& finding):
    return GuardFinding(
        _DAMAGE[<uint8_t>finding.kind], finding.block.generation, finding.block.address, finding.block.nbytes,
        _text(finding.block.tag), finding.damage.offset, finding.damage.bad_bytes, finding.damage.found,
        finding.damage.expected, format_stack(_stack_of(finding.allocated_at)),
        format_stack(_stack_of(finding.freed_at)))


cdef void _report_finding(PyObject* context, const NativeFinding* finding) noexcept with gil:
    import logging

    try:
        logging.getLogger("tensormem").error("%s", _finding(finding[0]))
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)


cdef class DebugGuardResourceAdaptor(DeviceMemoryResource):
    """Finds writes outside a block, to the byte, and writes after it was given back.

    Guard bytes on both sides, poison in fresh and freed memory, and a quarantine that keeps freed blocks from reuse.
    Damage raises `OutOfBounds` or `UseAfterFree` with a report in its notes, and goes to the logger "tensormem".

    >>> import ctypes
    >>> import tensormem as tm
    >>> mr = tm.mr.DebugGuardResourceAdaptor(tm.mr.HostMemoryResource())
    >>> block = mr.allocate(100)
    >>> _ = ctypes.memset(block.ptr + 100, 0, 1)
    >>> mr.check()[0].offset
    100
    >>> mr.deallocate(block)
    Traceback (most recent call last):
    ...
    tensormem.errors.OutOfBounds: ...
    """

    cdef shared_ptr[NativeDebugGuard] _guard

    def __init__(self, upstream_mr, *, guard_bytes=64, quarantine_bytes="16MiB", bint capture_stacks=True):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        cdef DebugGuardOptions options
        cdef CaptureFunction capture = NULL
        if capture_stacks:
            capture = _capture
        options.front_guard = size_of(guard_bytes)
        options.back_guard = options.front_guard
        options.quarantine_bytes = size_of(quarantine_bytes)
        options.host_accessible = bool(upstream.is_host_accessible)
        check(check_guard_options(options))
        self._guard = make_shared[NativeDebugGuard](
            upstream._owner, options, guard_hooks(capture, <PyObject*>None, _report_finding))
        self.adopt(static_pointer_cast[Resource, NativeDebugGuard](self._guard), upstream.driver, upstream)

    def deallocate(self, DeviceBlock block not None, stream=None):
        """Give a block back and look at it. Damaged or not, it is taken back."""
        try:
            DeviceMemoryResource.deallocate(self, block, stream)
        except (errors.OutOfBounds, errors.UseAfterFree) as error:
            self._explain(block, error)
            raise

    def _explain(self, DeviceBlock block, error):
        cdef NativeFinding finding
        block._owned = block._owned and block.state == "live"
        if self._guard.get().reports().about(block.raw.generation, &finding):
            error.add_note(str(_finding(finding)))

    def check(self):
        """Look at every block, live and quarantined; gives a list of `GuardFinding`."""
        cdef vector[NativeFinding] findings
        cdef size_t i
        self._check_open()
        check(self._guard.get().check_all(&findings))
        return [_finding(findings[i]) for i in range(findings.size())]

    def flush_quarantine(self):
        """Look at everything in quarantine and give it back to the upstream."""
        self._check_open()
        check(self._guard.get().flush_quarantine())

    @property
    def last_report(self):
        """The newest `GuardFinding`, or None."""
        cdef NativeFinding finding
        self._check_open()
        return _finding(finding) if self._guard.get().reports().last(&finding) else None

    @property
    def finding_count(self):
        """How much damage was found so far."""
        self._check_open()
        return self._guard.get().reports().count()

    @property
    def quarantined_bytes(self):
        """Bytes that are given back and kept from reuse."""
        self._check_open()
        return self._guard.get().quarantined_bytes()

    def describe(self):
        """One line about the guard."""
        return (f"DebugGuardResourceAdaptor: {self.finding_count} findings, "
                f"{format_size(self.quarantined_bytes)} in quarantine")
