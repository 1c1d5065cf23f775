# Owns: the declarations of the observing adaptors: logging, tracking, debug guard.
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from tensormem._core.native cimport Block, BlockState, Resource, ResourcePtr, Status, StreamId, TagId


cdef extern from "base/status.hpp" namespace "tensormem" nogil:
    cdef enum class Code(uint8_t):
        ok
    const char* class_name(Code code)


cdef extern from "_core/observers.hpp" namespace "tensormem" nogil:
    cdef enum class LogAction(uint8_t):
        allocate
        deallocate
        reap
    cdef cppclass LogRecord:
        uint64_t order
        int64_t timestamp_ns
        uint64_t address
        uint64_t nbytes
        uint64_t generation
        StreamId stream
        const char* what
        uint32_t thread
        int32_t device
        TagId tag
        LogAction action
        Code code
        BlockState state
    cdef cppclass LogSink:
        pass
    ctypedef shared_ptr[LogSink] LogSinkPtr
    cdef cppclass MemoryLogSink(LogSink):
        vector[LogRecord] snapshot()
        void clear()
    cdef cppclass RingLogSink(LogSink):
        @staticmethod
        Status make(size_t capacity, shared_ptr[RingLogSink]* sink)
        vector[LogRecord] snapshot()
        uint64_t overwritten()
        void clear()
    cdef cppclass CsvLogSinkOptions:
        cbool overwrite
    cdef cppclass CsvLogSink(LogSink):
        @staticmethod
        Status open(const string& path, const CsvLogSinkOptions& options, shared_ptr[CsvLogSink]* sink)
        uint64_t skipped_records()
    cdef cppclass LoggingResourceAdaptor(Resource):
        LoggingResourceAdaptor(ResourcePtr upstream, LogSinkPtr sink)
        uint64_t dropped_records()
        Status flush()

    cdef cppclass CapturedStack:
        pass
    cdef cppclass StackHooks:
        pass
    cdef cppclass TrackedBlock:
        Block block
        int64_t timestamp_ns
        CapturedStack stack
    cdef cppclass TagTotal:
        TagId tag
        uint64_t nbytes
        uint64_t count
    cdef enum class TrackedOrder(uint8_t):
        largest_first
        oldest_first
    cdef cppclass TrackingResourceAdaptor(Resource):
        TrackingResourceAdaptor(ResourcePtr upstream, StackHooks hooks)
        uint64_t outstanding_bytes()
        void outstanding(TrackedOrder order, vector[TrackedBlock]* blocks)
        void totals_by_tag(vector[TagTotal]* totals)

    cdef enum class GuardDamageKind(uint8_t):
        underflow
        overflow
        use_after_free
    cdef cppclass GuardDamage:
        int64_t offset
        uint64_t bad_bytes
        uint8_t found
        uint8_t expected
    cdef cppclass GuardFinding:
        Block block
        GuardDamageKind kind
        GuardDamage damage
        CapturedStack allocated_at
        CapturedStack freed_at
    cdef cppclass DebugGuardOptions:
        uint64_t front_guard
        uint64_t back_guard
        cbool host_accessible
        uint64_t quarantine_bytes
        uint64_t quarantine_blocks
    Status check_guard_options(const DebugGuardOptions& options)
    cdef cppclass DebugGuardHooks:
        pass
    cdef cppclass GuardReports:
        cbool last(GuardFinding* finding)
        cbool about(uint64_t generation, GuardFinding* finding)
        uint64_t count()
    cdef cppclass DebugGuardResourceAdaptor(Resource):
        DebugGuardResourceAdaptor(ResourcePtr upstream, const DebugGuardOptions& options, DebugGuardHooks hooks)
        Status check_all(vector[GuardFinding]* findings)
        Status flush_quarantine()
        const GuardReports& reports()
        uint64_t quarantined_bytes()
        uint64_t quarantined_count()

    ctypedef PyObject* (*CaptureFunction)() noexcept
    ctypedef void (*RecordFunction)(PyObject*, const LogRecord*, Status*) noexcept
    ctypedef void (*FindingFunction)(PyObject*, const GuardFinding*) noexcept
    StackHooks stack_hooks(CaptureFunction capture)
    PyObject* stack_object(const CapturedStack& stack)


cdef extern from "_core/observers.hpp" namespace "tensormem":
    LogSinkPtr callback_sink(PyObject* context, RecordFunction function)
    DebugGuardHooks guard_hooks(CaptureFunction capture, PyObject* context, FindingFunction report)
