"""Owns: the general allocator over pages, as a leaf of resource stacks."""
from libc.stdint cimport int32_t, uint64_t
from libcpp.memory cimport shared_ptr, static_pointer_cast
from libcpp.utility cimport move

from tensormem._core.resource cimport DeviceMemoryResource, budget_or_limit
from tensormem._core.construction cimport begin_construction
from tensormem._core.base cimport Driver, find_driver, size_of
from tensormem._core.failures cimport check
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native cimport Resource, ResourcePtr, Status
from tensormem._core.native_pool cimport BudgetPtr


cdef extern from "resource/elastic_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass ElasticOptions:
        uint64_t capacity
        uint64_t page_bytes
        uint64_t release_threshold
    cdef cppclass ElasticUsage:
        uint64_t physical_bytes
        uint64_t peak_physical_bytes
        uint64_t used_page_bytes
        uint64_t idle_bytes
        uint64_t total_free
        uint64_t largest_free
    cdef cppclass NativeElastic "tensormem::ElasticMemoryResource":
        @staticmethod
        Status create(NativeDriver& driver, int32_t device, const ElasticOptions& options, BudgetPtr budget,
                      shared_ptr[NativeElastic]* out)
        uint64_t page_bytes()
        uint64_t capacity()
        ElasticUsage usage()
        Status trim(uint64_t keep_bytes, uint64_t* released)
        bint pages_are_valid()


cdef class ElasticMemoryResource(DeviceMemoryResource):
    """Blocks of any size over pages that are held only while they are used.

    A block never fails for fragmentation: free pages, wherever they are, are put behind addresses that run. Pages that
    nothing lies in are kept for the next block up to `release_threshold`, then go back; `trim()` gives them back now.
    `physical_limit`, or a `budget` shared with others, bounds the memory. `device` is "main", or a GPU: text such as
    "cuda:1", a number, a space such as `tm.gpu(1)`, or a driver.

    >>> import tensormem as tm
    >>> mr = tm.mr.ElasticMemoryResource(physical_limit="64MiB")
    >>> blocks = [mr.allocate("2MiB") for _ in range(32)]
    >>> for block in blocks[::2]:
    ...     mr.deallocate(block)
    >>> large = mr.allocate("32MiB")  # there is no hole of that size, and it fits
    >>> mr.physical_bytes
    67108864
    """

    cdef NativeElastic* _elastic
    cdef readonly object budget

    def __init__(self, device="main", *, page_size="2MiB", capacity=None, physical_limit=None,
                 budget=None, release_threshold="256MiB"):
        begin_construction(self._construction, self)
        cdef ElasticOptions options
        cdef BudgetPtr admitted
        cdef shared_ptr[NativeElastic] made
        cdef Driver chosen = find_driver(device, ("main", "gpu"), "pages are mapped", True)
        cdef Status status
        admitted = budget_or_limit(budget, physical_limit, chosen, chosen.device)
        options.page_bytes = size_of(page_size)
        options.release_threshold = size_of(release_threshold)
        if capacity is not None:
            options.capacity = min(size_of(capacity), 0x7FFFFFFFFFFFFFFF)
        with nogil:
            status = NativeElastic.create(chosen.native[0], chosen.device, options, admitted, &made)
        check(move(status))
        self._elastic = made.get()
        self.budget = budget
        self.adopt(static_pointer_cast[Resource, NativeElastic](made), chosen, None)

    @property
    def page_size(self):
        """In what steps memory comes and goes."""
        return self._open().page_bytes()

    @property
    def capacity(self):
        """How many bytes of addresses it has."""
        return self._open().capacity()

    @property
    def physical_bytes(self):
        """The memory of all pages that it holds now."""
        return self._open().usage().physical_bytes

    @property
    def peak_physical_bytes(self):
        """The most memory that its pages had."""
        return self._open().usage().peak_physical_bytes

    @property
    def idle_bytes(self):
        """The memory of the pages that nothing lies in, kept for the next block."""
        return self._open().usage().idle_bytes

    @property
    def fragmentation(self):
        """The share of the pages in use that no block needs: 0 when nothing is allocated."""
        used = self._open().usage().used_page_bytes
        return 1 - min(1.0, self.bytes_outstanding / used) if used else 0.0

    def trim(self, keep_bytes=0):
        """Give idle pages back until at most `keep_bytes` of them are left; says how many bytes went."""
        cdef NativeElastic* native = self._open()
        cdef uint64_t keep = size_of(keep_bytes)
        cdef uint64_t released = 0
        cdef Status status
        with nogil:
            status = native.trim(keep, &released)
        check(move(status))
        return released

    def _is_valid(self):
        return self._open().pages_are_valid()

    cdef NativeElastic* _open(self) except NULL:
        self._check_open()
        return self._elastic
