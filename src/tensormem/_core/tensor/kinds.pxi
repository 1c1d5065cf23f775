"""Owns: the leaves over kinds of memory (`KindMemoryResource` and its kin), and storages whose memory they count.

A kind is made by a function of its own, which travels with the request through whatever stands above the leaf. Must not
know: how any kind is made; the functions are given, or asked for by name when a first block is.
"""
cimport cython
from cpython.ref cimport PyObject, Py_INCREF
from libc.stdint cimport uint64_t
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast, unique_ptr
from libcpp.string_view cimport string_view

from tensormem._core.construction cimport begin_construction
from tensormem._core.base cimport Driver
from tensormem._core.hooks cimport python_failure
from tensormem._core.native cimport AllocRequest, KindMemoryResource as NativeKindMemoryResource
from tensormem._core.native cimport MemoryMaker, Resource, Status
from tensormem._core.native cimport MemorySpace, space_from_text
from tensormem._core.resource cimport DeviceBlock, DeviceMemoryResource

from importlib import import_module

from tensormem import errors
from tensormem._core import base
from tensormem._core.base import share_block, shared_block


cdef extern from "base/align.hpp" namespace "tensormem" nogil:
    uint64_t align_up(uint64_t value, uint64_t alignment)


cdef extern from "resource/shared_memory_maker.hpp" namespace "tensormem" nogil:
    shared_ptr[MemoryMaker] standard_shared_memory_maker()


cdef extern from "driver/host/spare_files.hpp" namespace "tensormem::host" nogil:
    uint64_t drop_spare_files()
    uint64_t spare_file_bytes()


cdef class KindMemoryResource(DeviceMemoryResource):
    """The leaf over a kind of memory that something else makes: a kind of your own, or what was imported by descriptor.

    It makes no block of a size alone: `tensormem.memories` does, and counts it here. `space` is where the memory is: that
    of a GPU goes back in the order of the GPU's streams.

    >>> import tensormem as tm
    >>> mr = tm.mr.KindMemoryResource("camera")
    >>> mr.kind, mr.bytes_outstanding
    ('camera', 0)
    """

    def __init__(self, kind, space="main"):
        begin_construction(self._construction, self)
        cdef shared_ptr[MemoryMaker] nobody
        # What is meant by a "where" is known above this module.
        from tensormem.drivers import resolve

        where = resolve(space)
        self.kind = str(kind)
        _adopt(self, where.driver, str(where.space), nobody)

    def describe(self):
        """One line about this resource alone, for pictures of a stack."""
        name = type(self).__name__
        return f"{name} of {self.kind}" if type(self) is KindMemoryResource else name


cdef class SharedMemoryResource(KindMemoryResource):
    """Memory that other processes can hold: each block is a nameless file in memory, zeroed.

    Making such memory is dear, so what nobody else ever saw is kept for the next block of its size and tag, up to a
    sixteenth of the machine's memory, and zeroed when it is used again. `idle_bytes` says how much that is, for the whole
    process, and `trim` returns it.

    >>> import tensormem as tm
    >>> mr = tm.mr.SharedMemoryResource()
    >>> block = mr.allocate("64KiB", tag="frames")
    >>> bytes(block)[:4], mr.bytes_outstanding
    (b'\\x00\\x00\\x00\\x00', 65536)
    """

    def __init__(self):
        begin_construction(self._construction, self)
        self.kind = "shm"
        _adopt(self, base.host(), "main", standard_shared_memory_maker())

    @property
    def idle_bytes(self):
        """The memory that this process keeps for the next block."""
        return spare_file_bytes()

    def trim(self):
        """Return the memory that is kept for the next block; says how many bytes."""
        cdef uint64_t nbytes
        with nogil:
            nbytes = drop_spare_files()
        return nbytes


cdef class DmaMemoryResource(KindMemoryResource):
    """DMA-BUFs: memory that devices reach without a copy. `heap` is one of `tensormem.memories.dma.list_heaps()`,
    "udmabuf", or None for the first that works.

    >>> import tensormem as tm
    >>> mr = tm.mr.DmaMemoryResource()
    >>> if tm.memories.is_available("dma"):
    ...     mr.deallocate(mr.allocate("64KiB"))
    """

    cdef readonly object heap

    def __init__(self, heap=None):
        begin_construction(self._construction, self)
        self.kind = "dma"
        self.heap = heap
        _adopt(self, base.host(), "main", _standard("tensormem.memories.dma.making", {"heap": heap}))


cdef class PixelBufferResource(KindMemoryResource):
    """Pixel buffers of OpenGL that stay mapped, of `context` or of the default one.

    >>> import tensormem as tm
    >>> mr = tm.mr.PixelBufferResource()
    >>> if tm.memories.is_available("pbo"):
    ...     mr.deallocate(mr.allocate("64KiB"))
    """

    cdef readonly object context

    def __init__(self, context=None):
        begin_construction(self._construction, self)
        self.kind = "pbo"
        self.context = context
        _adopt(self, base.host(), "main", _standard("tensormem.memories.pbo", {"context": context, "persistent": True}))


cdef int _adopt(KindMemoryResource leaf, Driver driver, str space, shared_ptr[MemoryMaker] standard) except -1:
    cdef bytes text = space.encode()
    cdef MemorySpace found
    if not space_from_text(string_view(<const char*>text, len(text)), &found):
        raise errors.InvalidSpace(space)
    leaf.adopt(
        static_pointer_cast[Resource, NativeKindMemoryResource](
            make_shared[NativeKindMemoryResource](driver.native[0], driver.device, found, standard)),
        driver,
        None,
    )
    return 0


# ---- Kinds that Python makes ----

@cython.final
cdef class KindRequest:
    """What a storage of a kind is made by, and what came of it."""

    cdef object make  # called with a size; gives a storage
    cdef Storage storage
    cdef object error
    cdef uint64_t nbytes  # what is wanted; 0 if whatever is asked for will do
    cdef bint whole  # whether the memory cannot be larger than that

    def __init__(self):
        raise TypeError("made by a kind of memory")


cdef shared_ptr[MemoryMaker] _standard(str module, dict options):
    # The kinds stand above this module; they are asked when a block is, and never before.
    cdef KindRequest asked = KindRequest.__new__(KindRequest)
    asked.make = lambda nbytes: import_module(module).make_storage(nbytes, **options)
    return static_pointer_cast[MemoryMaker, PythonMaker](make_shared[PythonMaker](<PyObject*>asked, _make_memory, end_memory))


cdef void _make_memory(PyObject* held, const AllocRequest* request, PyObject** ending, uint64_t* address,
                Status* status) noexcept with gil:
    cdef KindRequest asked = <KindRequest>held
    cdef Storage made
    try:
        if asked.nbytes != 0:
            asked.storage = asked.error = None
        if asked.whole and request.nbytes > asked.nbytes:
            raise errors.NotSupported("more room around memory that exists already")
        made = asked.make(request.nbytes)
        if asked.nbytes == 0 and made.address % request.alignment:
            # A block by its size alone has to be aligned, and nobody else maps what is around it.
            made.close()
            made = asked.make(request.nbytes + request.alignment)
        if made.address == 0 and asked.nbytes != 0 and request.nbytes > asked.nbytes:
            made.close()
            raise errors.NotSupported("room around memory that has no address while it is not mapped")
        ended = made.ending()
        Py_INCREF(ended)
        ending[0] = <PyObject*>ended
        address[0] = made.address if asked.nbytes != 0 else align_up(made.address, request.alignment)
        if asked.nbytes != 0:
            asked.storage = made
    except BaseException as error:
        if asked.nbytes != 0:
            asked.error = error
        status[0] = python_failure(<PyObject*>error, "the maker of the memory raised", request.nbytes)


def allocate_of_kind(DeviceMemoryResource mr not None, nbytes, make, *, stream=None, alignment=None, tag=None):
    """The storage that `make(nbytes)` gives, counted by `mr`, which is asked first and may refuse. It goes back in the
    order of `stream`."""
    cdef KindRequest asked = KindRequest.__new__(KindRequest)
    asked.make = make
    return _counted(asked, mr, nbytes, stream, alignment, tag)


def adopt_storage(DeviceMemoryResource mr not None, Storage storage not None, *, file=None, stream=None, tag=None):
    """Let `mr` count a storage of memory that exists already, and give it. If `mr` refuses, the storage is closed.

    `file` is the (st_dev, st_ino) behind it: memory that this process counts already is counted once.
    """
    cdef KindRequest asked
    cdef DeviceBlock block = storage.block
    if block is not None or storage.capacity == 0:
        return storage
    block = None if file is None else shared_block(file)
    if block is not None:
        try:
            storage.ending().attach(block, NULL)
            return storage
        except errors.UseAfterFree:  # its last holder lets go of it at this moment
            pass
    asked = KindRequest.__new__(KindRequest)
    asked.make = lambda _: storage
    asked.whole = True
    try:
        _counted(asked, mr, storage.capacity, stream, None, tag)
    except BaseException:
        storage.close()
        raise
    if file is not None:
        share_block(file, storage.block)
    return storage


cdef Storage _counted(KindRequest asked, DeviceMemoryResource mr, object nbytes, object stream, object alignment,
                      object tag):
    cdef AllocRequest request
    cdef DeviceBlock block
    cdef unique_ptr[PythonMaker] maker
    mr._request(&request, nbytes, stream, 1 if alignment is None else alignment, tag)
    asked.nbytes = request.nbytes
    maker.reset(new PythonMaker(<PyObject*>asked, _make_memory, end_memory))
    request.maker = maker.get()
    try:
        block = mr.take(request)
    except errors.CallbackFailed as failure:
        if asked.error is not None and failure.__cause__ is asked.error:
            raise asked.error from None
        raise
    if asked.storage is None:
        refuse_part(mr, block)
    asked.storage.hold_block(block, maker.get().made())
    return asked.storage


cdef int refuse_part(DeviceMemoryResource mr, DeviceBlock block) except -1:
    raise errors.MemoryUnavailable(
        _kind_of(mr), f"{mr!r} hands out parts of larger memory, which cannot be shared or mapped by themselves; let a "
                      "leaf or an adaptor over one serve this kind")


cdef str _kind_of(DeviceMemoryResource mr):
    while mr.upstream_mr is not None:
        mr = mr.upstream_mr
    return (<KindMemoryResource>mr).kind if isinstance(mr, KindMemoryResource) else "memory"


def kind_of(DeviceMemoryResource mr not None):
    """The kind of memory that a stack has at its bottom; None if it is plain memory."""
    kind = _kind_of(mr)
    return None if kind == "memory" else kind
