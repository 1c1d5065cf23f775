# cython: language_level=3, freethreading_compatible=True
"""Owns: a buffer whose address never changes while it grows and shrinks: reserved addresses, and pages behind the part
that is in use. Every page is its own physical memory, so that shrinking gives it back.

Must not know: what the bytes mean.
"""
import threading

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint64_t

from tensormem._core.sizes cimport size_of
from tensormem._core.virtual_memory cimport VirtualAddressRange, VirtualMemoryManager

from tensormem import errors
from tensormem._core import drivers
from tensormem.units import format_size

cdef uint64_t _LARGEST = <uint64_t>1 << 62


@cython.final
cdef class GrowableBuffer:
    """Bytes that grow in place, up to `max_size`. Views of the old part stay valid; shrinking gives memory back.

    It cannot shrink under a view of the part that would go: that raises `BufferError` and changes nothing.

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
    cdef dict _exports  # length of the view: how many
    cdef object _lock
    cdef readonly bint closed
    cdef object __weakref__

    def __init__(self, max_size, nbytes=0):
        cdef uint64_t limit = size_of(max_size)
        if self._range is not None:
            raise errors.InvalidArgument("a buffer is made once")
        if limit == 0 or limit > _LARGEST:
            raise errors.InvalidSize(max_size)
        self._vmm = VirtualMemoryManager(drivers.host())  # its own: nobody else can close it under a view
        minimum, recommended = self._vmm.granularity()
        self._page = recommended if limit >= <uint64_t>recommended else minimum
        self._pages = []
        self._exports = {}
        self._lock = threading.Lock()
        self._range = self._vmm.reserve((limit + self._page - 1) // self._page * self._page, self._page)
        if nbytes:
            self.resize(nbytes)

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
    def page_size(self):
        """In what steps memory is taken and given back."""
        return self._page

    def __len__(self):
        return self._nbytes

    def resize(self, nbytes):
        """Grow or shrink to `nbytes`. New bytes are zero."""
        cdef uint64_t wanted = size_of(nbytes)
        with self._lock:
            self._open()
            if wanted > self._range.size:
                raise errors.InvalidOffset(0, wanted, self._range.size, what="the buffer cannot grow that far")
            if self._exports and max(self._exports) > wanted:
                raise BufferError(f"a view of {max(self._exports):,} bytes is in use: cannot shrink to {wanted:,}")
            self._set_page_count((wanted + self._page - 1) // self._page)
            if wanted < self._nbytes:
                self._clear(wanted, min(self._nbytes, self.capacity))
            self._nbytes = wanted

    cdef int _set_page_count(self, uint64_t count) except -1:
        cdef uint64_t have = len(self._pages)
        if count > have:
            fresh = [
                self._vmm.alloc_physical(self._page, near=self._range.base + i * self._page) for i in range(have, count)
            ]
            self._vmm.map(self._range, fresh, have * self._page, access="read_write")
            self._pages.extend(fresh)
        elif count < have:
            self._vmm.unmap(self._range, count * self._page, (have - count) * self._page)
            for page in self._pages[count:]:
                page.close()
            del self._pages[count:]
        return 0

    cdef int _clear(self, uint64_t start, uint64_t end) except -1:
        # Bytes that come back later are zero, as fresh pages are.
        if end > start:
            self._vmm.driver.fill(self._range.base + start, 0, 1, (end - start, 1, 1))
        return 0

    cdef VirtualAddressRange _open(self):
        if self._range is None or self.closed:
            raise errors.UseAfterRelease(0, what="the buffer was closed")
        return self._range

    def __getbuffer__(self, Py_buffer* view, int flags):
        with self._lock:
            self._open()
            PyBuffer_FillInfo(view, self, <void*><uint64_t>self._range.base, self._nbytes, 0, flags)
            self._exports[self._nbytes] = self._exports.get(self._nbytes, 0) + 1

    def __releasebuffer__(self, Py_buffer* view):
        cdef uint64_t length = view.len
        with self._lock:
            left = self._exports[length] - 1
            if left:
                self._exports[length] = left
            else:
                del self._exports[length]

    def close(self):
        """Give everything back. `BufferError` while there are views. Once or many times."""
        if self.closed or self._range is None:
            return
        with self._lock:
            if self._exports:
                raise BufferError(f"{sum(self._exports.values())} views are in use")
            self._range.close()
            for page in self._pages:
                page.close()
            self._pages.clear()
            self._nbytes = 0
            self.closed = True

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
