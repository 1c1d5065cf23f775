"""Owns: block caches as Python sees them: ids in batches, through any buffer of 64-bit integers or any sequence.

Must not know: drivers by name and what reports look like; `tensormem.pools` does.
"""
import array
import operator
from itertools import islice

cimport cython
from cpython cimport array as arrays
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector

from tensormem._core.resource cimport ExportCount, SharedUse, budget_or_limit, tag_or_current
from tensormem._core.construction cimport Construction, begin_construction
from tensormem._core.base cimport Driver, place_name, refuse, size_of, stream_id
from tensormem._core.failures cimport check
from tensormem._core.native cimport Status, StreamId, TagId
from tensormem._core.native_block_cache cimport BlockCache as NativeCache
from tensormem._core.native_block_cache cimport BlockCacheOptions, BlockCacheStats, CacheBlockId, PackingReport
from tensormem._core.native_pool cimport BudgetPtr, LocalBudget
from tensormem._core.native_trace cimport trace_drop_stack, trace_hold_stack

from tensormem import errors
from tensormem.units import format_size

cdef arrays.array _IDS = array.array("q")
# What is no buffer is copied first, and an iterable may have no end.
cdef Py_ssize_t _MOST_COPIED = 1 << 24
cdef arrays.array _ADDRESSES = array.array("Q")


# --- Batches of ids ---


cdef class _Batch:
    """The ids that a caller gave, in place where they are 64-bit integers side by side."""

    cdef Py_buffer _view
    cdef bint _held
    cdef const CacheBlockId* ids
    cdef uint64_t count

    def __dealloc__(self):
        if self._held:
            PyBuffer_Release(&self._view)

    cdef bint _look(self, object ids) except -1:
        # False: there is no such buffer.
        try:
            PyObject_GetBuffer(ids, &self._view, PyBUF_ND | PyBUF_FORMAT)
        except (BufferError, ValueError):
            return False
        self._held = True
        if self._view.ndim != 1 or self._view.itemsize != 8 or self._view.format is NULL:
            return False
        kind = self._view.format.decode().lstrip("@=<")
        if kind not in ("q", "l", "Q", "L"):
            return False
        self.ids = <const CacheBlockId*>self._view.buf
        self.count = <uint64_t>self._view.shape[0]
        return True


cdef _Batch _batch(object ids):
    cdef _Batch batch = _Batch.__new__(_Batch)
    if PyObject_CheckBuffer(ids) and batch._look(ids):
        return batch
    try:
        copied = array.array("q", islice(ids, _MOST_COPIED + 1))
    except (TypeError, OverflowError):
        raise errors.InvalidArgument(
            f"ids of blocks are a sequence or a buffer of 64-bit integers, not {type(ids).__name__}"
        ) from None
    if len(copied) > _MOST_COPIED:
        raise errors.InvalidArgument(f"at most {_MOST_COPIED:,} ids at once come from {type(ids).__name__}; give a buffer")
    batch = _Batch.__new__(_Batch)
    batch._look(copied)
    return batch


cdef CacheBlockId _one(object number) except? 0:
    try:
        return <CacheBlockId><long long>operator.index(number)
    except (TypeError, OverflowError):
        raise errors.InvalidArgument(f"the id of a block is a 64-bit integer, not {number!r}") from None


cdef arrays.array _ids_of(const vector[CacheBlockId]& found):
    cdef arrays.array ids = arrays.clone(_IDS, <Py_ssize_t>found.size(), False)
    if found.size():
        memcpy(ids.data.as_voidptr, found.data(), found.size() * sizeof(CacheBlockId))
    return ids


@cython.final
cdef class _BlockView:
    """The bytes of one block. While a view of them is in use the block is pinned."""

    cdef shared_ptr[NativeCache] _native
    cdef object _cache
    cdef CacheBlockId _id

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef NativeCache* cache = self._native.get()
        cdef uint64_t address = 0
        check(cache.pin(&self._id, 1))
        try:
            check(cache.addresses(&self._id, 1, &address))
            PyBuffer_FillInfo(view, self, <void*>address, <Py_ssize_t>cache.block_bytes(), 0, flags)
        except BaseException:
            check(cache.unpin(&self._id, 1))
            raise

    def __releasebuffer__(self, Py_buffer* view):
        self._native.get().unpin(&self._id, 1)


# --- The cache ---


cdef class BlockCache:
    """See `tensormem.pools.BlockCache`, which finds the driver by name and tells owners of moves."""

    cdef shared_ptr[NativeCache] native
    cdef readonly Driver driver
    cdef readonly int32_t device
    cdef readonly object budget
    cdef readonly bint closed
    cdef ExportCount _uses  # by calls that are under way; closed for good with the cache
    cdef Construction _construction
    cdef object __weakref__

    def __init__(self, Driver driver not None, int32_t device, capacity, block_size, page_size, *, physical_limit=None,
                 budget=None, release_threshold=None, low_water=0, bint background=False):
        begin_construction(self._construction, self)
        cdef BlockCacheOptions options
        cdef BudgetPtr admitted
        cdef Status status
        admitted = budget_or_limit(budget, physical_limit, driver, device)
        options.capacity = size_of(capacity)
        options.block_bytes = size_of(block_size)
        options.page_bytes = size_of(page_size)
        options.device = device
        if release_threshold is not None:
            options.idle_bytes = size_of(release_threshold)
        options.ahead_pages = size_of(low_water) // (options.page_bytes or 1)
        options.background = background
        with nogil:
            status = NativeCache.open(driver.native[0], options, admitted, &self.native)
        check(move(status))
        self.driver = driver
        self.device = device
        self.budget = budget

    # --- Who it is ---

    @property
    def where(self):
        """The device by name: "host", "cuda:0", "rocm:1"."""
        return place_name(self.driver, self.device)

    @property
    def base_address(self):
        """The lowest address that a block can have."""
        return self._open().base()

    @property
    def capacity(self):
        """The bytes of addresses."""
        return self._open().capacity()

    @property
    def block_size(self):
        """The bytes of one block."""
        return self._open().block_bytes()

    @property
    def page_size(self):
        """In what steps memory comes and goes."""
        return self._open().page_bytes()

    @property
    def physical_memory_usage(self):
        """The bytes of memory it has now: behind blocks, and kept for reuse."""
        return self._open().physical_bytes()

    @property
    def physical_limit(self):
        """The most that its budget admits, for all who share it; None without a limit."""
        self._open()
        if self.budget is not None:
            return self.budget.limit
        limit = self._own_limit().limit()
        return None if limit == _UNLIMITED else limit

    @physical_limit.setter
    def physical_limit(self, value):
        self._open()
        if self.budget is not None:
            raise errors.InvalidArgument("the limit is the budget's: set it there")
        self._own_limit().set_limit(_UNLIMITED if value is None else size_of(value))

    # --- Blocks ---

    def allocate(self, count, *, tag=None):
        """The ids of `count` new blocks, all or none, as an `array('q')`. The fullest pages are filled first. Traces know
        them by `tag`, or by the tag in force.
        """
        cdef SharedUse[NativeCache] cache = self._share()
        cdef arrays.array ids
        cdef uint64_t number
        cdef CacheBlockId* out
        cdef Status status
        cdef TagId named = tag_or_current(tag)
        try:
            wanted = operator.index(count)
        except TypeError:
            raise errors.InvalidArgument(f"a number of blocks is an integer, not {count!r}") from None
        if wanted < 0:
            raise errors.InvalidArgument(f"a number of blocks is not negative: {wanted}")
        if wanted * cache.get().block_bytes() > cache.get().capacity():
            raise errors.OutOfVirtualMemory(wanted * cache.get().block_bytes(), what="more than the cache has addresses")
        number = wanted
        ids = arrays.clone(_IDS, <Py_ssize_t>number, False)
        out = <CacheBlockId*>ids.data.as_voidptr
        trace_hold_stack()
        with nogil:
            status = cache.get().allocate(number, named, out)
        trace_drop_stack()
        if not status.ok():
            refuse(self, move(status), named)
        return ids

    def deallocate(self, ids, stream=None):
        """End these blocks, all or none. Their memory is used again after the work queued on `stream`, and after every
        recorded use; nothing waits for it.
        """
        cdef SharedUse[NativeCache] cache = self._share()
        cdef _Batch batch = _batch(ids)
        cdef StreamId queue = stream_id(stream, self.driver.native)
        cdef Status status
        trace_hold_stack()
        with nogil:
            status = cache.get().free(batch.ids, batch.count, queue)
        trace_drop_stack()
        check(move(status))

    def address(self, number):
        """Where a block is now. Compaction may move it: ask again, or pin it."""
        cdef CacheBlockId which = _one(number)
        cdef uint64_t found = 0
        check(self._open().addresses(&which, 1, &found))
        return found

    def addresses(self, ids):
        """Where each of these blocks is now, as an `array('Q')`."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef _Batch batch = _batch(ids)
        cdef arrays.array found = arrays.clone(_ADDRESSES, <Py_ssize_t>batch.count, False)
        cdef uint64_t* out = <uint64_t*>found.data.as_voidptr
        cdef Status status
        with nogil:
            status = cache.get().addresses(batch.ids, batch.count, out)
        check(move(status))
        return found

    def view(self, number):
        """The bytes of a block on the host, as a memoryview. While it is in use the block is pinned."""
        cdef _BlockView view = _BlockView.__new__(_BlockView)
        self._open()
        view._native = self.native
        view._cache = self
        view._id = _one(number)
        if self.driver.name != "host":
            raise BufferError(f"memory on {self.where} cannot be read by the host: copy it")
        return memoryview(view)

    def __contains__(self, number):
        cdef CacheBlockId which = _one(number)
        cdef uint64_t found = 0
        return self._open().addresses(&which, 1, &found).ok()

    def pin(self, ids):
        """Keep these blocks where they are, and from being freed, until they are unpinned as often."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef _Batch batch = _batch(ids)
        check(cache.get().pin(batch.ids, batch.count))

    def unpin(self, ids):
        """Let them move again. `InvalidArgument` if one is not pinned so often; then nothing has changed."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef _Batch batch = _batch(ids)
        check(cache.get().unpin(batch.ids, batch.count))

    def record_use(self, ids, stream):
        """Work queued on `stream` so far uses these blocks: until it is done they stay where they are."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef _Batch batch = _batch(ids)
        cdef StreamId queue = stream_id(stream, self.driver.native)
        check(cache.get().record_use(batch.ids, batch.count, queue))

    def reap_pending(self):
        """Take back what was freed on streams that have passed since. `allocate` and `free` do so by themselves."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef Status status
        with nogil:
            status = cache.get().reap_pending()
        check(move(status))

    # --- Pages ---

    def eviction_hints(self, nbytes, candidates=None):
        """The ids of blocks whose end empties pages of at least `nbytes`, or as much as can be: the fewest blocks for
        the most pages, in an order in which each step empties pages. Only `candidates` are named, if given; never what
        is pinned.
        """
        cdef SharedUse[NativeCache] cache = self._share()
        cdef uint64_t wanted = size_of(nbytes)
        cdef _Batch batch = _batch(() if candidates is None else candidates)
        cdef cbool any_block = candidates is None
        cdef vector[CacheBlockId] found
        cdef Status status
        with nogil:
            status = cache.get().eviction_hints(wanted, batch.ids, batch.count, any_block, &found)
        check(move(status))
        return _ids_of(found)

    def _compact(self, max_bytes, max_seconds):
        # What was done, the ids that moved with their old and new addresses, and the failure that stopped it, or None.
        cdef SharedUse[NativeCache] cache = self._share()
        cdef uint64_t bytes_limit = _UNLIMITED if max_bytes is None else size_of(max_bytes)
        cdef double seconds_limit = 1e30 if max_seconds is None else max_seconds
        cdef PackingReport report
        cdef Status status
        cdef size_t i
        if bytes_limit < cache.get().block_bytes():
            raise errors.InvalidSize(bytes_limit, what=f"one block has {cache.get().block_bytes():,} bytes")
        if not seconds_limit > 0:
            raise errors.InvalidArgument(f"max_seconds is a time above 0, not {max_seconds!r}")
        with nogil:
            status = cache.get().compact(bytes_limit, seconds_limit, &report)
        cdef arrays.array ids = arrays.clone(_IDS, <Py_ssize_t>report.moves.size(), False)
        cdef arrays.array old = arrays.clone(_ADDRESSES, <Py_ssize_t>report.moves.size(), False)
        cdef arrays.array new = arrays.clone(_ADDRESSES, <Py_ssize_t>report.moves.size(), False)
        for i in range(report.moves.size()):
            ids.data.as_longlongs[i] = <long long>report.moves[i].id
            old.data.as_ulonglongs[i] = report.moves[i].old_address
            new.data.as_ulonglongs[i] = report.moves[i].new_address
        failure = None
        try:
            check(move(status))
        except errors.TensormemError as error:
            failure = error
        return {
            "blocks_moved": report.moves.size(),
            "pages_remapped": 0,
            "bytes_copied": report.copied_bytes,
            "pages_released": report.released_pages,
            "seconds": report.seconds,
            "finished": report.finished,
        }, ids, old, new, failure

    def trim(self, keep_bytes=0):
        """Give empty pages back until at most `keep_bytes` of them are left; says how many bytes went."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef uint64_t keep = size_of(keep_bytes)
        cdef uint64_t gone
        with nogil:
            gone = cache.get().trim(keep)
        return gone * cache.get().page_bytes()

    def step_ahead(self, max_bytes=None):
        """Make pages until the low water is reached, or `max_bytes` are made; says how many bytes. What the background
        thread does by itself.
        """
        cdef SharedUse[NativeCache] cache = self._share()
        cdef uint64_t most = _UNLIMITED if max_bytes is None else size_of(max_bytes) // cache.get().page_bytes()
        cdef uint64_t made
        with nogil:
            made = cache.get().step_ahead(most)
        return made * cache.get().page_bytes()

    def set_release_threshold(self, release_threshold):
        """How many bytes of empty pages to keep for reuse from now on; None for all."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef uint64_t idle = _UNLIMITED if release_threshold is None else size_of(release_threshold)
        with nogil:
            cache.get().set_idle_bytes(idle)

    # --- Looking ---

    def _stats(self):
        cdef BlockCacheStats stats = self._open().stats()
        return {
            "block_size": stats.block_bytes,
            "page_size": stats.page_bytes,
            "pages_per_frame": stats.pages_per_frame,
            "blocks_per_frame": stats.blocks_per_frame,
            "capacity_blocks": stats.capacity_blocks,
            "live_blocks": stats.live_blocks,
            "retired_blocks": stats.retired_blocks,
            "pinned_blocks": stats.pinned_blocks,
            "used_pages": stats.used_pages,
            "floor_pages": stats.floor_pages,
            "cached_pages": stats.cached_pages,
            "physical_usage": stats.physical_bytes,
            "peak_physical_usage": stats.peak_physical_bytes,
            "created_pages": stats.created_pages,
            "total_allocated": stats.total_allocated,
            "total_freed": stats.total_freed,
            "total_moved": stats.total_moved,
        }

    def _is_valid(self):
        return self._open().is_valid()

    # --- The end ---

    def close(self):
        """Give everything back, whatever is still in it. `StillHeld`, a `BufferError`, while blocks are pinned or viewed,
        or calls of other threads are under way. Closing twice is harmless.
        """
        cdef shared_ptr[NativeCache] native
        if self.closed or self.native.get() is NULL:
            return
        pinned = self.native.get().stats().pinned_blocks
        if pinned:
            raise errors.StillHeld(self.native.get().base(), pinned, what="blocks of the cache are pinned or viewed")
        if not self._uses.close():
            if self.closed:
                return
            raise errors.StillHeld(self.native.get().base(), self._uses.count(),
                                   what="calls of other threads use the cache")
        self.closed = True
        native.swap(self.native)
        with nogil:
            native.reset()

    def __enter__(self):
        self._open()
        return self

    def __exit__(self, *failure):
        self.close()

    def __repr__(self):
        if self.closed or self.native.get() is NULL:
            return "<BlockCache, closed>"
        return (
            f"<BlockCache of {format_size(self.capacity)} on {self.where}: {self._stats()['live_blocks']:,} blocks of "
            f"{format_size(self.block_size)} in {format_size(self.physical_memory_usage)} of memory>"
        )

    def __reduce__(self):
        raise TypeError("a cache belongs to one process and cannot be pickled")

    # --- Checks ---

    cdef NativeCache* _open(self) except NULL:
        if self.native.get() is NULL:
            raise errors.UseAfterRelease(0, what="the cache was closed" if self.closed else "the cache was not made")
        return self.native.get()

    # For the length of a call, which counts as a user of the cache.
    cdef SharedUse[NativeCache] _share(self) except *:
        self._open()
        if not self._uses.add():
            raise errors.UseAfterRelease(0, what="the cache was closed")
        return SharedUse[NativeCache](self.native, &self._uses)

    cdef LocalBudget* _own_limit(self):
        return <LocalBudget*>self.native.get().budget().get()
