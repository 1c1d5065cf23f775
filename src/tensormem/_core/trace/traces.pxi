"""Owns: the recorder as Python sees it: start, stop, flush, counters; and the recording that the environment asks for.

Must not know: the format of files, or who reads them.
"""
import atexit
import os

from libc.stdint cimport int64_t, uint64_t
from libcpp.utility cimport move

from tensormem._core.failures cimport check
from tensormem._core.native cimport Status
from tensormem._core.native_trace cimport (
    RecorderOptions,
    RecorderReport,
    TraceRecorder,
    environment_follows_children,
    install_python_stacks,
    report_counter,
    start_trace_of_environment,
    trace_is_on,
)
from tensormem._core.resource cimport tag_id

from typing import NamedTuple

from tensormem import errors

install_python_stacks()


class RecordingReport(NamedTuple):
    """What a recording came to: events in the file, events lost on the way, bytes of the file, nanoseconds."""

    events: int
    dropped: int
    nbytes: int
    duration_ns: int


def start_recording(path, *, bint stacks=False, bint overwrite=False, flush_interval=0.05):
    """Record what happens from now on into a file; see `tensormem.trace`."""
    cdef RecorderOptions options
    cdef Status status
    if not 0.001 <= flush_interval <= 3600:
        raise errors.InvalidArgument(f"a flush interval is from 0.001 to 3600 seconds, not {flush_interval!r}")
    options.path = os.fsencode(path)
    options.stacks = stacks
    options.overwrite = overwrite
    options.flush_interval_ns = <uint64_t>(flush_interval * 1e9)
    with nogil:
        status = TraceRecorder.instance().start(options)
    check(move(status))


def stop_recording():
    """Everything reported before is in the file, which is closed. What it came to."""
    cdef RecorderReport report
    cdef Status status
    with nogil:
        status = TraceRecorder.instance().stop(&report)
    check(move(status))
    return _report(report)


def flush_recording():
    """Everything that this thread reported before is in the file."""
    cdef Status status
    with nogil:
        status = TraceRecorder.instance().flush()
    check(move(status))


def is_recording():
    """Whether this process records."""
    return trace_is_on()


def recording_report():
    """What the recording has come to so far."""
    cdef RecorderReport report
    with nogil:
        report = TraceRecorder.instance().report()
    return _report(report)


def counter(name, value):
    """Report the value of something that is counted, by name; nothing happens when nobody records."""
    if trace_is_on():
        report_counter(tag_id(name), <int64_t>value)


cdef object _report(const RecorderReport& report):
    return RecordingReport(report.events, report.dropped, report.nbytes, report.duration_ns)


# ---- The environment ----

def start_from_environment():
    """Record as `TENSORMEM_TRACE` says, if it does. A trace that cannot be written is warned about: it must not keep a
    program from running.
    """
    if "TENSORMEM_TRACE" not in os.environ:
        return
    from tensormem.config import get_config

    if get_config().trace == "off":
        return
    if environment_follows_children():
        os.register_at_fork(after_in_child=_start)
    _start()


def _start():
    cdef Status status
    with nogil:
        status = start_trace_of_environment()
    try:
        check(move(status))
    except errors.TensormemError as error:
        import warnings

        path = os.environ["TENSORMEM_TRACE"].replace("{pid}", str(os.getpid()))
        warnings.warn(f"nothing is recorded: TENSORMEM_TRACE={path}: {error}", RuntimeWarning, stacklevel=2)


def _stop_at_exit():
    if trace_is_on():
        stop_recording()


# Here and not when the library is unloaded: what Python frees while it ends would look like work of the program.
atexit.register(_stop_at_exit)
