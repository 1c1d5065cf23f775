# Owns: the declarations of native/trace: reports, reporters and the recorder.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.string_view cimport string_view

from tensormem._core.native cimport Status


cdef extern from "trace/record.hpp" namespace "tensormem" nogil:
    cbool trace_is_on()
    # Around a call without the GIL that reports: nobody can look at Python's frames there.
    void trace_hold_stack()
    void trace_drop_stack()


cdef extern from "trace/reporters.hpp" namespace "tensormem" nogil:
    void rename_reporter(uint32_t id, string_view name)
    string space_of_reporter(uint32_t id)


cdef extern from "trace/reports.hpp" namespace "tensormem" nogil:
    void report_copy(uint64_t destination, uint64_t source, uint64_t nbytes, uint64_t stream)
    void report_use(uint32_t resource, uint64_t address, uint64_t nbytes, uint64_t generation, uint64_t stream,
                    uint32_t tag, uint8_t access)
    void report_tag(cbool begins, uint32_t tag)
    void report_counter(uint32_t name, int64_t value)


cdef extern from "trace/environment.hpp" namespace "tensormem" nogil:
    cbool environment_follows_children()
    Status start_trace_of_environment()


cdef extern from "_core/stacks.hpp" namespace "tensormem" nogil:
    cdef cppclass RecorderOptions:
        string path
        cbool overwrite
        cbool stacks
        uint64_t flush_interval_ns
    cdef cppclass RecorderReport:
        uint64_t events
        uint64_t dropped
        uint64_t nbytes
        uint64_t duration_ns
    cdef cppclass TraceRecorder:
        @staticmethod
        TraceRecorder& instance()
        Status start(const RecorderOptions& options)
        Status stop(RecorderReport* report)
        Status flush()
        RecorderReport report()


cdef extern from "_core/stacks.hpp" namespace "tensormem":
    void install_python_stacks()
