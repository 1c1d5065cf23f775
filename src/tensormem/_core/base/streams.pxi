"""Owns: streams and events as Python objects that own their native counterpart.

Must not know: resources, tensors. Waiting always releases the GIL, and hears signals.
"""
import atexit
import sys
import weakref

cimport cython
from cpython.exc cimport PyErr_SetInterrupt, PyErr_SetObject, PyErr_WriteUnraisable
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.utility cimport move

from tensormem._core.construction cimport begin_construction
from tensormem._core.failures cimport check
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native cimport EventHandle, Status, Wait, begin_ending, is_ending, kForEver
from tensormem._core.native_gpu cimport share_streams

from typing import Protocol, runtime_checkable

from tensormem import errors
from tensormem.awaitables import await_in_thread
from tensormem.config import get_config


cdef extern from "_core/gil.hpp" namespace "tensormem":
    cbool interpreter_is_ending() nogil


class StreamId(int):
    """The number of a stream and the driver that gave it: a value, which outlives the stream and is never given again.

    Wherever a stream is asked for, the id of a living one will do.

    >>> import tensormem as tm
    >>> with tm.Stream(tm.drivers.host()) as stream:
    ...     block = tm.mr.HostMemoryResource().allocate(64, stream.id)
    ...     block.alloc_stream == stream.id, stream.id.driver is stream.driver
    (True, True)
    """

    def __new__(cls, *args, **kwargs):
        raise TypeError("stream ids come from Stream.id and DeviceBlock.alloc_stream")

    @property
    def driver(self):
        """The driver whose stream it is."""
        return self._driver

    def __eq__(self, other):
        if isinstance(other, StreamId) and not _take_one_another(self._driver, other._driver, int(self)):
            return False
        return int.__eq__(self, other)

    def __ne__(self, other):
        return not self == other

    __hash__ = int.__hash__

    def __repr__(self):
        return f"<StreamId {int(self)} of {self._driver.name}>"

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        # In another process it names nothing: there it is a number.
        return int, (int(self),)


cdef object new_stream_id(Driver driver, StreamNumber number):
    made = int.__new__(StreamId, number)
    made._driver = driver
    return made


cdef bint _take_one_another(Driver one, Driver other, StreamNumber number):
    # Devices of one vendor take one another's streams; the default stream is each device's own.
    return one is other or (number != 0 and share_streams(one.native[0], other.native[0]))


# Not cleared by the collector: its end needs the driver.
@cython.no_gc_clear
cdef class Stream:
    """An ordered queue of work on a device.

    `driver` is one, or where the work is to run: "main", "gpu:1", "cuda:0". On the host a stream is a worker thread,
    first in, first out; its default stream (`Stream.default`) runs inline.

    >>> from tensormem.streams import Stream
    >>> from tensormem.drivers import host
    >>> done = []
    >>> with Stream(host()) as stream:
    ...     stream.launch(done.append, "first")
    ...     stream.launch(done.append, "second")
    ...     stream.synchronize()
    >>> done
    ['first', 'second']
    """

    def __init__(self, driver, device=None):
        begin_construction(self._construction, self)
        cdef Driver chosen = driver_of(driver)
        cdef int32_t where = chosen._device(device)
        check(chosen.native.stream_create(where, &self._id))
        self.driver = chosen
        self.device = where
        self._owned = True
        _live.add(self)
        _close_orphans()

    @staticmethod
    def default(driver, device=None):
        """The driver's default stream. On the host its work is done when the call returns."""
        cdef Driver chosen = driver_of(driver)
        cdef Stream stream = borrow_stream(chosen, 0)
        if device is None:
            return stream
        number = chosen._device(device)
        if not 0 <= number < chosen.device_count:
            raise errors.InvalidArgument(f"the {chosen.name} driver has no device {device}")
        stream.device = number
        return stream

    def __dealloc__(self):
        if not self._owned:
            return
        cdef Status status
        with nogil:
            status = self.driver.native.stream_close(self._id, Wait.of_caller(kForEver))
        if status.ok() or is_ending():
            return
        if self.driver.native.stream_is_valid(self._id):
            # Dropped by its own work, for whose end it cannot wait, or a signal came.
            _orphans.append((self.driver, self._id))
        _say_later(move(status))

    @property
    def id(self):
        """Its `StreamId`: the driver's number of this stream. 0 is the default stream, and numbers are never reused."""
        self._native()
        return new_stream_id(self.driver, self._id)

    @property
    def handle(self):
        """The vendor's own handle of this stream (a CUstream or hipStream_t), as a number; its id on the host."""
        cdef uint64_t handle = 0
        check(self._native().stream_export(self._id, &handle))
        return handle

    @property
    def is_default(self):
        """Whether this is the driver's default stream."""
        return self._id == 0

    @property
    def closed(self):
        """Whether the stream was destroyed, or belongs to the process this one was forked from."""
        return self._id != 0 and (self.driver is None or not self.driver.native.stream_is_valid(self._id))

    @property
    def done(self):
        """Whether all work given so far is finished."""
        cdef cbool done = False
        check(self._native().stream_query(self._id, &done))
        return done

    def synchronize(self, timeout=None):
        """Wait until all work given so far is finished; `TimedOut` when that takes longer than `timeout` seconds."""
        cdef NativeDriver* native = self._native()
        cdef uint64_t most = timeout_of(timeout)
        cdef Status status
        with nogil:
            status = native.stream_wait(self._id, Wait.of_caller(most))
        check(move(status))

    def __await__(self):
        """`await stream` waits like `synchronize`, in a thread, while other tasks go on; gives the stream."""
        return await_in_thread(self.done, self.synchronize, self)

    def record(self, Event event=None, *, bint timing=False):
        """Mark this point of the stream; gives the event, a new one unless told, with the time if `timing`."""
        cdef NativeDriver* native = self._native()
        if event is None:
            event = Event(self.driver, self.device, timing=timing)
        check(native.event_record(_handle(event), self._id))
        return event

    def wait(self, Event event not None):
        """Let the work given from now on start after the point that `event` marks. The host's default stream, which
        runs inline, waits for it here."""
        cdef NativeDriver* native = self._native()
        cdef EventHandle handle = _handle(event)
        cdef Status status
        with nogil:
            if native.stream_is_inline(self._id):
                status = native.event_wait(handle, Wait.of_caller(kForEver))
            else:
                status = native.stream_wait_event(self._id, handle)
        if not status.ok():
            _handle(event)  # closed since it was asked for: that is what is wrong
        check(move(status))

    def launch(self, function, *args):
        """Call `function(*args)` in stream order. It must not wait for this stream; an exception it raises is reported
        by `sys.unraisablehook`, and the stream goes on. `StreamMisuse` once the interpreter is ending."""
        if not callable(function):
            raise errors.InvalidArgument(f"launch needs something to call, not {type(function).__name__}")
        cdef NativeDriver* native = self._native()
        work = (function, args)
        cdef PyObject* argument = <PyObject*>work
        cdef Status status
        Py_INCREF(work)
        with nogil:
            status = native.launch_host(_run_work, <void*>argument, self._id)
        if not status.ok():
            Py_DECREF(work)
        check(move(status))

    def close(self, timeout=None):
        """Wait for the stream's work and destroy it. Calling it again is harmless.

        `TimedOut` when the work takes longer than `timeout` seconds: the stream stays open.
        """
        cdef uint64_t most = timeout_of(timeout)
        cdef Status status
        if not self._owned:
            return
        with nogil:
            status = self.driver.native.stream_close(self._id, Wait.of_caller(most))
        if status.ok() or self.closed:
            self._owned = False
        check(move(status))

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        if not self.closed:
            self.close()

    def __eq__(self, other):
        if not isinstance(other, Stream):
            return NotImplemented
        return self.driver is (<Stream>other).driver and self._id == (<Stream>other)._id

    def __hash__(self):
        return hash((None if self.driver is None else self.driver.name, self._id))

    def __repr__(self):
        if self.driver is None:
            return "<Stream (never made)>"
        kind = "default" if self._id == 0 else "closed" if self.closed else "open"
        return f"<Stream {self._id & 0xFFFFFFFF} on {self.driver.name}:{self.device} ({kind})>"

    def __reduce__(self):
        raise TypeError("a stream belongs to its process and cannot be pickled; make one on the other side")

    def __getattr__(self, name):
        # Offered only where there is a handle to offer, so that hasattr() tells the truth.
        if name == "__cuda_stream__" and self.driver is not None and self.driver.name == "cuda":
            return self._cuda_stream
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _cuda_stream(self):
        return 0, self.handle

    cdef NativeDriver* _native(self) except NULL:
        if self.driver is None:
            raise errors.StreamMisuse(0, what="the stream was never made")
        return self.driver.native


@cython.no_gc_clear
cdef class Event:
    """A point in a stream.

    With `timing`, it keeps the time at which its stream passes it, for `seconds_since`; drivers ask a price for that with
    every recording.

    >>> from tensormem.streams import Event, Stream
    >>> from tensormem.drivers import host
    >>> with Stream(host()) as stream:
    ...     event = stream.record()
    ...     event.synchronize()
    >>> event.done
    True
    """

    def __init__(self, driver, device=None, *, bint timing=False):
        begin_construction(self._construction, self)
        cdef Driver chosen = driver_of(driver)
        cdef int32_t where = chosen._device(device)
        if timing:
            check(chosen.native.event_create_timed(where, &self._handle))
        else:
            check(chosen.native.event_create(where, &self._handle))
        self.driver = chosen
        self.timing = timing

    def __dealloc__(self):
        if self._handle != NULL:
            self.driver.native.event_destroy(self._handle)

    @property
    def done(self):
        """Whether its stream has passed the point. An event that was never recorded is done."""
        cdef cbool done = False
        check(self.driver.native.event_query(_handle(self), &done))
        return done

    def record(self, stream):
        """Mark the present end of `stream`."""
        cdef EventHandle handle = _handle(self)
        check(self.driver.native.event_record(handle, stream_id(stream, self.driver.native)))

    def synchronize(self, timeout=None):
        """Wait until its stream has passed the point.

        `TimedOut` when that takes longer than `timeout` seconds, `StreamMisuse` when the event is closed meanwhile.
        """
        cdef EventHandle handle = _handle(self)
        cdef uint64_t most = timeout_of(timeout)
        cdef Status status
        with nogil:
            status = self.driver.native.event_wait(handle, Wait.of_caller(most))
        if not status.ok():
            _handle(self)  # closed since it was asked for: that is what is wrong
        check(move(status))

    def __await__(self):
        """`await event` waits like `synchronize`, in a thread, while other tasks go on; gives the event."""
        return await_in_thread(self.done, self.synchronize, self)

    def seconds_since(self, Event start not None):
        """Seconds between two recorded and passed points, of events made with `timing`."""
        cdef double seconds = 0
        if not (self.timing and start.timing):
            raise errors.InvalidArgument("an event keeps the time only if it was made with timing=True")
        check(self.driver.native.event_elapsed(_handle(start), _handle(self), &seconds))
        return seconds

    def close(self):
        """Destroy the event. Closing twice is closing once."""
        cdef EventHandle handle = self._handle
        if handle != NULL:
            self._handle = NULL
            check(self.driver.native.event_destroy(handle))

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __repr__(self):
        if self._handle == NULL:
            return "<Event (closed)>"
        return f"<Event on {self.driver.name} ({'done' if self.done else 'pending'})>"

    def __reduce__(self):
        raise TypeError("an event belongs to its process and cannot be pickled")


cdef Driver driver_of(object said):
    return said if isinstance(said, Driver) else find_driver(said, ("main", "gpu"), "work runs", False)


cdef Stream borrow_stream(Driver driver, StreamNumber id):
    cdef Stream stream = Stream.__new__(Stream)
    stream._construction.begin()
    stream.driver = driver
    stream.device = driver.device
    stream._id = id
    return stream


cdef EventHandle _handle(Event event) except NULL:
    if event._handle == NULL:
        raise errors.StreamMisuse(0, what="the event was closed")
    return event._handle


cdef void _run_work(void* argument) noexcept nogil:
    # Python is going away: its objects go with it, and a thread that asked for the GIL now would never get it.
    if interpreter_is_ending():
        return
    with gil:
        work = <object>argument
        Py_DECREF(work)
        try:
            work[0](*work[1])
        except BaseException as error:
            report_unraisable(error, work[0])


cdef void report_unraisable(object error, object where) noexcept:
    # The hook wants arguments of a type that only the interpreter makes.
    PyErr_SetObject(type(error), error)
    PyErr_WriteUnraisable(where)


@runtime_checkable
class SupportsCudaStream(Protocol):
    """A stream of another library: it offers the version of the protocol, which is 0, and its native handle.

    >>> from tensormem.streams import SupportsCudaStream
    >>> class Theirs:
    ...     def __cuda_stream__(self):
    ...         return 0, 0x7F00
    >>> isinstance(Theirs(), SupportsCudaStream), isinstance(3, SupportsCudaStream)
    (True, False)
    """

    def __cuda_stream__(self):
        """The version and the handle."""
        ...


# What is taken wherever a stream is asked for.
StreamLike = Stream | StreamId | SupportsCudaStream


cdef StreamNumber stream_id_slow(object stream, NativeDriver* driver) except? 0xFFFFFFFFFFFFFFFF:
    cdef StreamNumber number = 0
    if isinstance(stream, Stream):
        return _number_on(driver, (<Stream>stream).driver, (<Stream>stream)._id, stream)
    if type(stream) is StreamId:
        number = stream
        _number_on(driver, stream.driver, number, stream)
        if number != 0 and not driver.stream_is_valid(number):
            raise errors.StreamMisuse(number, what=f"{stream!r} is the id of a stream that was destroyed")
        return number
    offer = getattr(stream, "__cuda_stream__", None)
    if offer is None:
        raise errors.StreamMisuse(
            0, what=f"a stream is a tensormem Stream or StreamId or has __cuda_stream__, not {type(stream).__name__}")
    version, handle = _offered(offer)
    if version != 0:
        raise errors.StreamMisuse(0, what=f"__cuda_stream__ version {version} is not known; 0 is")
    check(driver.stream_import(driver.home(), address_of(handle), &number))
    return number


cdef StreamNumber _number_on(NativeDriver* driver, Driver home, StreamNumber number,
                             object given) except? 0xFFFFFFFFFFFFFFFF:
    # Devices of one vendor take one another's streams; the default stream is each device's own.
    if home is None or not (home.native == driver or (number != 0 and share_streams(home.native[0], driver[0]))):
        raise errors.StreamMisuse(
            number, what=f"{given!r} belongs to another driver than {(<bytes>driver.name()).decode()}")
    return number


def _offered(offer):
    answer = offer() if callable(offer) else offer
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], int) and 0 <= answer[1] < 2**64:
        return answer
    raise errors.StreamMisuse(0, what=f"__cuda_stream__() gives a version and a handle, not {answer!r:.80}")


# Streams that Python made and still holds, so that their work is finished before the interpreter goes.
_live = weakref.WeakSet()
cdef int _say_later(Status status) except -1:
    # Nothing can be raised where a stream is dropped: what a signal wants is heard at the next occasion.
    try:
        check(move(status))
    except KeyboardInterrupt:
        PyErr_SetInterrupt()
    except errors.TensormemError:
        pass
    except BaseException as error:
        report_unraisable(error, Stream)
    return 0


# Streams dropped before their work was done, to be destroyed when it is.
_orphans = []


def _close_orphans():
    cdef Status status
    cdef Driver driver
    cdef StreamNumber stream
    cdef cbool done
    waiting, _orphans[:] = list(_orphans), []
    for driver, stream in waiting:
        done = True
        with nogil:
            status = driver.native.stream_query(stream, &done)
            if status.ok() and done:
                status = driver.native.stream_destroy(stream)
        if not (status.ok() and done) and driver.native.stream_is_valid(stream):
            _orphans.append((driver, stream))


cdef bint _ended = False


def end_streams():
    """At the end of the interpreter: no new work, a bounded time for what there is, and the rest is named and left.

    Once: whoever ends something at exit that queued work still needs calls it before.
    """
    global _ended
    if _ended:
        return
    _ended = True
    cdef uint64_t most = get_config().exit_timeout * 1_000_000_000
    begin_ending(most)
    dropped = [borrow_stream(driver, number) for driver, number in list(_orphans)]
    left = [stream for stream in [*_live, *dropped] if not stream.closed and not _finishes(stream)]
    for stream in left:
        print(f"tensormem: {stream!r} has work that was not done {most // 1_000_000_000} s after the interpreter began "
              "to end (TENSORMEM_EXIT_TIMEOUT); it is left as it is", file=sys.stderr)
    _close_orphans()


def _finishes(stream):
    try:
        stream.synchronize()
    except errors.TimedOut:
        return False
    except errors.TensormemError:  # closed by another thread, or lost with its device
        return True
    except BaseException:  # a signal: whoever sent it wants the end now
        return stream.done
    return True


atexit.register(end_streams)
