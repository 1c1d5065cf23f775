"""Owns: a buffer whose address never changes while it grows and shrinks: reserved addresses, and pages behind the part
that is in use. Every page is its own physical memory, so that shrinking gives it back.

Must not know: what the bytes mean.
"""
import threading

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint32_t, uint64_t
from libcpp.memory cimport unique_ptr
from libcpp.utility cimport move
from posix.types cimport pid_t
from posix.unistd cimport getpid

from tensormem._core.resource cimport budget_or_limit, tag_or_current
from tensormem._core.construction cimport Construction, begin_construction
from tensormem._core.native cimport PhysicalOptions, Status, TagId, tag_text
from tensormem._core.native_pool cimport BudgetPtr
from tensormem._core.base cimport note_shortage, refuse, size_of

from tensormem import errors
from tensormem._core import base
from tensormem.units import format_size

cdef extern from "_core/view_counts.hpp" namespace "tensormem" nogil:
    cdef cppclass ViewCounts:
        ViewCounts() except +MemoryError
        void add(uint64_t nbytes) except +MemoryError
        void remove(uint64_t nbytes)
        uint64_t longest()
        uint64_t count()


cdef extern from "pool/committed_range.hpp" namespace "tensormem" nogil:
    cdef cppclass CommittedRange:
        CommittedRange(BudgetPtr budget, uint32_t reporter, const char* name, uint64_t base, TagId tag) except +MemoryError
        Status claim(uint64_t nbytes)
        void give_back(uint64_t nbytes)
        void grow(uint64_t nbytes)
        void shrink(uint64_t nbytes)
        uint64_t peak()
        TagId tag()


cdef uint64_t _LARGEST = <uint64_t>1 << 62


@cython.final
cdef class GrowableBuffer:
    """Bytes that grow in place, up to `max_size`. Views of the old part stay valid; shrinking gives memory back.

    It cannot shrink under a view of the part that would go: that raises `BufferError` and changes nothing. Its pages
    count in `physical_limit`, or in a `budget` shared with others; traces know them by `tag`, or by the tag in force
    when it was made.

    >>> import tensormem as tm
    >>> with tm.GrowableBuffer("1GiB") as buffer:
    ...     buffer.resize(1000)
    ...     view = memoryview(buffer)
    ...     view[:5] = b"hello"
    ...     buffer.resize("64MiB")
    ...     bytes(memoryview(buffer)[:5]), len(view), len(buffer)
    ...     view.release()
    (b'hello', 1000, 67108864)
    """

    cdef VirtualMemoryManager _vmm
    cdef VirtualAddressRange _range
    cdef list _pages
    cdef uint64_t _page
    cdef uint64_t _nbytes
    cdef uint64_t _used  # bytes behind `_nbytes`, up to here, may be other than zero
    cdef unique_ptr[ViewCounts] _views
    cdef unique_ptr[CommittedRange] _committed
    cdef readonly object budget
    cdef object _lock
    cdef bint _resizing
    cdef pid_t _home
    cdef readonly bint closed
    cdef Construction _construction
    cdef object __weakref__

    def __cinit__(self, *arguments, **options):
        self._views.reset(new ViewCounts())

    def __init__(self, max_size, nbytes=0, *, tag=None, physical_limit=None, budget=None):
        begin_construction(self._construction, self)
        cdef uint64_t limit = size_of(max_size)
        cdef TagId named = tag_or_current(tag)
        cdef BudgetPtr admitted
        if limit == 0 or limit > _LARGEST:
            raise errors.InvalidSize(max_size)
        admitted = budget_or_limit(budget, physical_limit, base.host(), 0)
        self._vmm = VirtualMemoryManager(base.host())  # its own: nobody else can close it under a view
        minimum, recommended = self._vmm.granularity()
        self._page = recommended if limit >= <uint64_t>recommended else minimum
        self._pages = []
        self._lock = threading.RLock()  # the garbage collector may come back to us in the middle of a call
        self._home = getpid()
        self._range = self._vmm.reserve((limit + self._page - 1) // self._page * self._page, self._page)
        self._committed.reset(
            new CommittedRange(
                admitted, self._range.native.get().id(), b"GrowableBuffer", self._range.native.get().base(), named
            )
        )
        self.budget = budget
        if nbytes:
            self.resize(nbytes)
        # The list of pools stands above this module.
        from tensormem.pools.living import remember

        remember(self)

    @property
    def address(self):
        """Where its first byte is and will stay."""
        return self._open().base

    @property
    def nbytes(self):
        """The bytes in use."""
        return self._nbytes

    @property
    def capacity(self):
        """The bytes that have memory: whole pages."""
        return len(self._pages) * self._page

    @property
    def max_size(self):
        """The bytes that it can grow to."""
        return self._open().size

    @property
    def peak(self):
        """The most bytes that ever had memory."""
        self._open()
        return self._committed.get().peak()

    @property
    def tag(self):
        """What its memory is called in traces; "untagged" if nothing."""
        self._open()
        text = tag_text(self._committed.get().tag())
        return text.data()[:text.size()].decode()

    @property
    def page_size(self):
        """In what steps memory is taken and given back."""
        return self._page

    def __len__(self):
        return self._nbytes

    def resize(self, nbytes):
        """Grow or shrink to `nbytes`. New bytes are zero."""
        cdef uint64_t wanted = size_of(nbytes)
        self._open()
        with self._lock:
            self._check_steady()
            if wanted > self._range.size:
                raise errors.InvalidOffset(0, wanted, self._range.size, what="the buffer cannot grow that far")
            if self._views.get().longest() > wanted:
                raise BufferError(f"a view of {self._views.get().longest():,} bytes is in use: cannot shrink to {wanted:,}")
            self._resizing = True
            try:
                self._resize(wanted)
            finally:
                self._resizing = False

    cdef int _resize(self, uint64_t wanted) except -1:
        if wanted > self._nbytes and self._used > self._nbytes:
            # Bytes that come back are zero, as fresh pages are.
            self._vmm.driver.fill(self._range.base + self._nbytes, 0, 1, (self._used - self._nbytes, 1, 1))
            self._used = self._nbytes
        self._set_page_count((wanted + self._page - 1) // self._page)
        self._used = min(max(self._used, self._nbytes), <uint64_t>len(self._pages) * self._page)
        self._nbytes = wanted
        return 0

    cdef int _set_page_count(self, uint64_t count) except -1:
        cdef uint64_t have = len(self._pages)
        if count > have:
            self._claim((count - have) * self._page)
            try:
                self._check_room((count - have) * self._page)
                fresh = [
                    self._make_page(self._range.base + i * self._page)
                    for i in range(have, count)
                ]
                self._vmm.map(self._range, fresh, have * self._page, access="read_write")
            except BaseException as error:
                self._committed.get().give_back((count - have) * self._page)
                note_shortage(error, self, self._committed.get().tag())
                raise
            self._pages.extend(fresh)
            self._committed.get().grow(count * self._page)
        elif count < have:
            self._vmm.unmap(self._range, count * self._page, (have - count) * self._page)
            for page in self._pages[count:]:
                page.close()
            del self._pages[count:]
            self._committed.get().shrink(count * self._page)
        return 0

    cdef object _make_page(self, uint64_t near):
        cdef PhysicalOptions options
        options.huge_pages = True
        options.placement = near
        return self._vmm.make_pages(self._page, 0, options, self._committed.get().tag())

    cdef int _claim(self, uint64_t nbytes) except -1:
        cdef CommittedRange* committed = self._committed.get()
        cdef Status status
        with nogil:
            status = committed.claim(nbytes)
        if not status.ok():
            refuse(self, move(status), committed.tag())
        return 0

    cdef int _check_room(self, uint64_t nbytes) except -1:
        # Asked at once, so that a hopeless wish does not first take all there is, page by page.
        free, _ = self._vmm.driver.memory_info()
        if nbytes > <uint64_t>free:
            raise errors.OutOfPhysicalMemory(nbytes, free)
        return 0

    cdef VirtualAddressRange _open(self):
        if self._range is None or self.closed:
            raise errors.UseAfterRelease(0, what="the buffer was closed")
        if self._home != getpid():
            raise errors.InvalidArgument("the buffer was made before a fork and belongs to the parent")
        return self._range

    cdef int _check_steady(self) except -1:
        self._open()
        if self._resizing:
            raise BufferError("the buffer is being resized")
        return 0

    def __getbuffer__(self, Py_buffer* view, int flags):
        self._open()
        with self._lock:
            self._check_steady()
            PyBuffer_FillInfo(view, self, <void*><uint64_t>self._range.base, self._nbytes, 0, flags)
            self._views.get().add(view.len)

    def __releasebuffer__(self, Py_buffer* view):
        self._views.get().remove(view.len)

    def close(self):
        """Give everything back. `BufferError` while there are views, or while another thread resizes it. Closing twice
        is harmless.
        """
        if self.closed or self._range is None:
            return
        if self._home != getpid():
            self._take_down()  # nobody else is here; the lock may be some other thread's of the parent
            return
        # Whoever has the lock uses the buffer: that is said, and not waited for.
        if not self._lock.acquire(blocking=False):
            raise BufferError("another thread uses the buffer: it is being resized")
        try:
            self._check_steady()
            if self._views.get().count() != 0:
                raise BufferError(f"{self._views.get().count()} views are in use")
            self._take_down()
        finally:
            self._lock.release()

    cdef int _take_down(self) except -1:
        self._range.close()
        for page in self._pages:
            page.close()
        self._pages.clear()
        self._committed.get().shrink(0)
        self._nbytes = self._used = 0
        self.closed = True
        return 0

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, *failure):
        self.close()

    def __repr__(self):
        if self.closed or self._range is None:
            return "<GrowableBuffer, closed>"
        return (
            f"<GrowableBuffer at {self._range.base:#x}: {format_size(self._nbytes)} in use, "
            f"{format_size(self.capacity)} mapped, {format_size(self._range.size)} at most>"
        )

    def __reduce__(self):
        raise TypeError("a growable buffer belongs to one process and cannot be pickled")
