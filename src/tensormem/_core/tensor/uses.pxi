"""Owns: who uses the memory of storages: operations that run now (`using`), and the queued work of streams.

A block is told of queued work, and then retires in stream order when its storage is dropped or closed. Where no block
can be told (memory of others, or of a driver whose streams are not the work's) the storage is held until the stream has
passed; it is released by the next allocation, by `reap_pending` and before a shortage is raised, and never waited for.
Must not know: what the work is.
"""
cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool
from libcpp.utility cimport move

from tensormem._core.base cimport Driver, Event, Stream, borrow_stream, report_unraisable
from tensormem._core.failures cimport check
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native cimport Access, Status
from tensormem._core.native_gpu cimport share_streams
from tensormem._core.native_order cimport StreamHolder, stream_hold_count, stream_holds
from tensormem._core.resource cimport DeviceBlock, DeviceMemoryResource

from tensormem import errors
from tensormem._core.resource import ArenaMemoryResource, PoolMemoryResource


cdef extern from *:
    """
    #include "driver/host/host_driver.hpp"
    static inline tensormem::Driver* tm_host_native() { return &tensormem::host_driver(); }
    """
    NativeDriver* _host_native "tm_host_native"() nogil


cdef extern from "_core/gil.hpp" namespace "tensormem":
    cbool interpreter_is_ending() nogil


@cython.final
@cython.freelist(16)
cdef class using:
    """While the body runs, an operation uses these storages: closing one raises `BufferError`.

    >>> import tensormem as tm
    >>> tensor = tm.zeros(3)
    >>> with using(tensor.storage):
    ...     tensor.storage.export_count
    1
    """

    cdef tuple _storages
    cdef Py_ssize_t _count

    def __init__(self, *storages):
        if self._storages is not None:
            raise errors.InvalidArgument("this use exists already; make a new one")
        self._storages = storages

    def __enter__(self):
        for storage in self._storages:
            try:
                (<Storage?>storage).begin_use()
            except BaseException:
                self._end()
                raise
            self._count += 1
        return self

    def __exit__(self, *exc_info):
        self._end()

    cdef void _end(self) noexcept:
        while self._count:
            self._count -= 1
            (<Storage>self._storages[self._count]).end_use()


@cython.final
@cython.no_gc_clear
cdef class Loan:
    """Counts as a user of a storage; the owner of another storage over the same memory."""

    cdef Storage _lent

    def __init__(self, Storage storage not None):
        if self._lent is not None:
            raise errors.InvalidArgument("this loan exists already; make a new one")
        storage.begin_view()
        self._lent = storage

    def __dealloc__(self):
        if self._lent is not None:
            self._lent.end_view()

    def release(self):
        """End the use."""
        with cython.critical_section(self):
            lent, self._lent = self._lent, None
        if lent is not None:
            (<Storage>lent).end_view()


def prepare_use(Storage storage not None, Stream work not None, access):
    """Let `work` wait for what a read or write of the storage by the work queued next must come after."""
    cdef DeviceBlock block = _block_of(storage)
    if block is None:
        return
    if _is_told(storage, block, work):
        block._mr.prepare_block_use(block, work, access)
    elif not storage.host and share_streams(block._mr.driver.native[0], work.driver.native[0]):
        # The default stream of another device of the vendor: the block is ready where its own stream is now.
        work.wait(borrow_stream(block._mr.driver, 0).record())


def finish_uses(Stream work not None, uses):
    """The work queued on `work` so far uses these storages: pairs of a storage and "read" or "write".

    Whatever fails here is raised, and the memory is kept all the same.
    """
    failure = None
    held = []
    for each, access in uses:
        block = _block_of(<Storage?>each)
        if block is not None and _is_told(<Storage>each, block, work):
            try:
                (<DeviceBlock>block)._mr.finish_block_use(block, work, access)
                continue
            except errors.TensormemError as error:
                failure = failure or error
        held.append(each)
    if held:
        _hold(work, held)
    if failure is not None:
        raise failure


def mark_written(Storage storage not None, Event event not None):
    """The work whose use of the storage was recorded writes it until `event`."""
    storage.set_pending(event)


def written_until(Storage storage not None):
    """The event until which work writes the storage; None where none is under way."""
    return storage.pending()


def reap_streams(*, bint quickly=False):
    """Release what was held for work that has passed, or only where that cannot wait; how many pieces of work."""
    return stream_holds().reap(quickly)


def held_for_streams():
    """How many pieces of work hold storages at this moment."""
    return stream_hold_count()


def finish_streams_of(driver_name):
    """Wait for the work that storages are held for on a driver that is closing, and release them.

    >>> finish_streams_of("host")
    """
    cdef bytes name = driver_name.encode()
    cdef const char* text = name
    with nogil:
        stream_holds().finish(text)


cdef int prepare_now(Storage storage, Access access) except -1:
    cdef DeviceBlock block = _block_of(storage)
    if block is not None and block._mr.driver.native == _host_native() and (
            block._mr.target.supports_block_use_tracking()):
        check(block._mr.target.prepare_block_use(block.raw, 0, access))
    return 0


cdef DeviceBlock _block_of(Storage storage):
    # In use, so its owner stays. Memory of a kind goes by way of the block that counts it only where it ends with it.
    cdef Ending end
    if type(storage._owner) is DeviceBlock:
        return <DeviceBlock>storage._owner
    end = storage._release if storage.accesses is None else storage.accesses
    return None if end is None or end._memory is NULL else end._block


cdef bint _is_told(Storage storage, DeviceBlock block, Stream work):
    # The default stream is each device's own; others can be used with all devices of a vendor. A GPU's memory that the
    # CPU reaches goes back only when it is idle: its next owner may touch it at once, in no stream's order.
    cdef NativeDriver* native = block._mr.driver.native
    if not block._mr.target.supports_block_use_tracking() or (storage.host and native != _host_native()):
        return False
    return native == work.driver.native or (work._id != 0 and share_streams(native[0], work.driver.native[0]))


@cython.final
cdef class Held:
    """Storages that queued work uses."""

    cdef list _storages

    def __init__(self):
        raise TypeError("made by the compiled core")

    cdef void _release(self) noexcept:
        for storage in self._storages:
            try:
                (<Storage>storage).end_queued_use()
            except BaseException as error:
                report_unraisable(error, Storage)


cdef int _hold(Stream work, list storages) except -1:
    cdef Held held = Held.__new__(Held)
    cdef StreamHolder holder
    cdef Status status
    held._storages = []
    holder.releases_quickly = True
    for storage in storages:
        (<Storage>storage).begin_queued_use()
        held._storages.append(storage)
        holder.releases_quickly = holder.releases_quickly and _releases_quickly(<Storage>storage)
    holder.object = <void*>held
    holder.release = _release_held
    Py_INCREF(held)
    stream_holds().reap_quickly(work.driver.native[0], work._id)
    with nogil:
        status = stream_holds().hold(work.driver.native[0], work.device, work._id, holder)
    if not status.ok():
        # Nothing can say when the stream has passed: the memory is kept for good.
        stream_holds().strand(holder)
    check(move(status))
    return 0


cdef bint _releases_quickly(Storage storage):
    # Drivers of GPUs may wait for the device when they are given memory back; pools keep it.
    cdef DeviceBlock block = _block_of(storage)
    if block is None or block._mr.driver.native == _host_native():
        return True
    mr = block._mr
    while mr is not None and not isinstance(mr, (ArenaMemoryResource, PoolMemoryResource)):
        mr = mr.upstream_mr
    return mr is not None


cdef void _release_held(void* object) noexcept nogil:
    # When Python is going away its objects go with it.
    if interpreter_is_ending():
        return
    with gil:
        _drop(<PyObject*>object)


cdef void _drop(PyObject* object) noexcept:
    cdef Held held = <Held>object
    Py_DECREF(held)
    held._release()
