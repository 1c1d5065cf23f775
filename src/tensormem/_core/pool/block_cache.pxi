"""Owns: block caches as Python sees them: ids in batches, through any buffer of 64-bit integers or any sequence.

Must not know: drivers by name and what reports look like; `tensormem.pools` does.
"""
import array
import operator
from itertools import islice

cimport cython
from cpython cimport array as arrays
from cpython.number cimport PyIndex_Check, PyNumber_AsSsize_t
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.limits cimport LLONG_MAX
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector

from tensormem._core.resource cimport ExportCount, SharedUse, budget_or_limit, tag_or_current
from tensormem._core.construction cimport Construction, begin_construction
from tensormem._core.base cimport Driver, place_name, refuse, size_of, stream_id, timeout_of
from tensormem._core.failures cimport check
from tensormem._core.native cimport Status, StreamId, TagId, Wait, is_used
from tensormem._core.native_block_cache cimport BlockCache as NativeCache
from tensormem._core.native_block_cache cimport BlockCacheOptions, BlockCacheStats, CacheBlockId, PackingReport
from tensormem._core.native_pool cimport BudgetPtr, LocalBudget
from tensormem._core.native_trace cimport trace_drop_stack, trace_hold_stack

from tensormem import errors
from tensormem.units import format_size

cdef arrays.array _IDS = array.array("q")
# What is no buffer is copied first, and an iterable may have no end.
cdef Py_ssize_t _MOST_COPIED = 1 << 24
cdef Py_ssize_t _MOST_PLANES = 1 << 16
cdef arrays.array _ADDRESSES = array.array("Q")
cdef arrays.array _NARROW = array.array("i")

# What caches ask of the room of tensors; installed by `tensormem.tensor` when it is imported.
_tensors = None


def install_cache_tensors(functions):
    """Say where tensors over a cache, and slots as tensors, are made."""
    global _tensors
    _tensors = functions


cdef object _above_caches():
    if _tensors is None:  # somebody asks who has no tensors yet
        import tensormem.tensor
    return _tensors


# --- Batches of ids ---


cdef extern from "_core/id_batch.hpp" namespace "tensormem":
    cdef cppclass IdBatch:
        cbool look(object ids)
        const CacheBlockId* data() nogil
        uint64_t size() nogil


cdef int _take(object ids, IdBatch* batch) except -1:
    # In place where they are 64-bit integers side by side; what is not is copied.
    if PyObject_CheckBuffer(ids) and batch.look(ids):
        return 0
    try:
        copied = array.array("q", islice(ids, _MOST_COPIED + 1))
    except (TypeError, OverflowError):
        raise errors.InvalidArgument(
            f"ids of blocks are a sequence or a buffer of 64-bit integers, not {type(ids).__name__}"
        ) from None
    if len(copied) > _MOST_COPIED:
        raise errors.InvalidArgument(f"at most {_MOST_COPIED:,} ids at once come from {type(ids).__name__}; give a buffer")
    batch.look(copied)
    return 0


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


cdef double _check_window(object demand_blocks) except? -1:
    cdef double window
    try:
        window = float(demand_blocks)
    except (TypeError, ValueError):
        raise errors.InvalidArgument(f"demand_blocks is a number of blocks, not {demand_blocks!r}") from None
    if not 0 <= window <= 1e18:
        raise errors.InvalidArgument(f"demand_blocks is a number of blocks, not {demand_blocks!r}")
    return window


cdef bint _is_narrow(object dtype) except -1:
    name = getattr(dtype, "name", dtype)
    if name not in ("int32", "int64"):
        raise errors.InvalidArgument(f"slots are int32 or int64, not {dtype!r}")
    return name == "int32"


cdef int _fill_slots(NativeCache* cache, const CacheBlockId* ids, uint64_t count, void* out, bint narrow) except -1:
    if narrow:
        check(cache.slots(ids, count, <int32_t*>out))
    else:
        check(cache.slots(ids, count, <int64_t*>out))
    return 0


cdef int _write_slots(NativeCache* cache, const CacheBlockId* ids, uint64_t count, Py_buffer* view) except -1:
    kind = b"" if view.format is NULL else view.format.lstrip(b"@=<")
    if view.ndim != 1 or kind not in (b"i", b"l", b"q") or view.itemsize not in (4, 8):
        raise errors.InvalidArgument("slots are written into one dimension of int32 or int64")
    if <uint64_t>view.shape[0] != count:
        raise errors.InvalidArgument(f"{count:,} slots do not fill {view.shape[0]:,} elements")
    return _fill_slots(cache, ids, count, view.buf, view.itemsize == 4)


@cython.final
cdef class _BlockView:
    """The bytes of one block. While a view of them is in use the block is pinned."""

    cdef shared_ptr[NativeCache] _native
    cdef object _cache
    cdef CacheBlockId _id
    cdef uint64_t _plane

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef NativeCache* cache = self._native.get()
        cdef uint64_t address = 0
        check(cache.pin(&self._id, 1))
        try:
            check(cache.addresses(&self._id, 1, &address))
            PyBuffer_FillInfo(view, self, <void*>(address + self._plane * cache.plane_bytes()), <Py_ssize_t>cache.block_bytes(), 0, flags)
        except BaseException:
            check(cache.unpin(&self._id, 1))
            raise

    def __releasebuffer__(self, Py_buffer* view):
        self._native.get().unpin(&self._id, 1)


@cython.final
cdef class CacheRange:
    """All addresses of one cache, for a storage over them: while it is held the cache stays open. Made by `tensor`."""

    cdef BlockCache _cache
    cdef bint _held

    def __init__(self):
        raise TypeError("made by a cache")

    def __dealloc__(self):
        self.release()

    def release(self):
        """Let the cache close again."""
        with cython.critical_section(self):
            held, self._held = self._held, False
        if held:
            self._cache._tensors.remove()

    def check_mapped(self, uint64_t address, uint64_t nbytes):
        """Raise `NotMapped` if a slot that these bytes touch has no block."""
        if self._cache is None:
            raise errors.UseAfterRelease(0, what="the range was not made")
        check(self._cache._open().check_range(address, nbytes))


# --- The cache ---


cdef _check_not_pinned(NativeCache* native):
    pinned = native.stats().pinned_blocks
    if pinned:
        raise errors.StillHeld(native.base(), pinned, what="blocks of the cache are pinned or viewed")
    if is_used(native.base(), native.capacity()):
        raise errors.StillHeld(native.base(), 1, what="a call was given an address of the cache")


cdef class BlockCache:
    """See `tensormem.pools.BlockCache`, which finds the driver by name and tells owners of moves."""

    cdef shared_ptr[NativeCache] native
    cdef readonly Driver driver
    cdef readonly int32_t device
    cdef readonly object budget
    cdef readonly bint closed
    cdef ExportCount _uses  # by calls that are under way; closed for good with the cache
    cdef ExportCount _tensors  # storages over the addresses
    cdef ExportCount _tables  # block tables that hold blocks
    cdef Construction _construction
    cdef object __weakref__

    def __init__(self, Driver driver not None, int32_t device, capacity, block_size, page_size, *, physical_limit=None,
                 budget=None, release_threshold=None, low_water=0, bint background=False, planes=1, demand_blocks=0):
        begin_construction(self._construction, self)
        cdef BlockCacheOptions options
        cdef BudgetPtr admitted
        cdef Status status
        admitted = budget_or_limit(budget, physical_limit, driver, device)
        options.capacity = size_of(capacity)
        options.block_bytes = size_of(block_size)
        options.page_bytes = size_of(page_size)
        options.planes = operator.index(planes) if 0 < operator.index(planes) <= _MOST_PLANES else 0
        options.device = device
        if release_threshold is not None:
            options.idle_bytes = size_of(release_threshold)
        options.demand_blocks = _check_window(demand_blocks)
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
    def planes(self):
        """In how many tensors of the same slots a block has a part."""
        return self._open().planes()

    @property
    def block_stride(self):
        """The bytes from slot to slot in a plane: slot `i` begins at `i * block_stride`, from the first to the last."""
        return self._open().stride()

    @property
    def plane_stride(self):
        """The bytes from plane to plane."""
        return self._open().plane_bytes()

    @property
    def slot_count(self):
        """How many blocks there are addresses for."""
        return self._open().capacity_blocks()

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
        cdef Py_ssize_t wanted
        try:
            wanted = PyNumber_AsSsize_t(count, OverflowError)
        except TypeError:
            raise errors.InvalidArgument(f"a number of blocks is an integer, not {count!r}") from None
        except OverflowError:
            wanted = -1 if count < 0 else LLONG_MAX
        if wanted < 0:
            raise errors.InvalidArgument(f"a number of blocks is not negative: {count}")
        number = <uint64_t>wanted
        if number > cache.get().capacity_blocks():
            raise errors.OutOfVirtualMemory(operator.index(count) * cache.get().block_bytes() * cache.get().planes(),
                                            what="more than the cache has addresses")
        ids = arrays.clone(_IDS, wanted, False)
        out = <CacheBlockId*>ids.data.as_voidptr
        if cache.get().try_allocate(number, named, out):
            return ids
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
        cdef IdBatch batch
        _take(ids, &batch)
        cdef StreamId queue
        cdef Status status
        if stream is None and cache.get().try_free(batch.data(), batch.size()):
            if cache.get().has_excess():
                with nogil:
                    cache.get().return_excess()
            return
        queue = stream_id(stream, self.driver.native)
        trace_hold_stack()
        with nogil:
            status = cache.get().free(batch.data(), batch.size(), queue)
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
        cdef IdBatch batch
        _take(ids, &batch)
        cdef arrays.array found = arrays.clone(_ADDRESSES, <Py_ssize_t>batch.size(), False)
        cdef uint64_t* out = <uint64_t*>found.data.as_voidptr
        cdef Status status
        with nogil:
            status = cache.get().addresses(batch.data(), batch.size(), out)
        check(move(status))
        return found

    def slots(self, ids, dtype="int64", *, out=None, device=None):
        """The slot numbers of these blocks, which index every tensor over the cache: an `array` of "int32" or "int64".

        With `out`, a writable buffer of either type and of the same length, they are written there and it is returned.
        With a `device`, they are a tensor there, by one copy. Compaction may move a block to another slot.
        """
        cdef SharedUse[NativeCache] cache = self._share()
        cdef IdBatch batch
        cdef arrays.array found
        cdef Py_buffer view
        _take(ids, &batch)
        if out is not None and device is None:
            PyObject_GetBuffer(out, &view, PyBUF_ND | PyBUF_FORMAT | PyBUF_WRITABLE)
            try:
                _write_slots(cache.get(), batch.data(), batch.size(), &view)
            finally:
                PyBuffer_Release(&view)
            return out
        if out is not None:
            raise errors.InvalidArgument("say either where the slots are written or the device of a new tensor")
        narrow = _is_narrow(dtype)
        if narrow and cache.get().capacity_blocks() > 0x7FFFFFFF:
            raise errors.InvalidArgument("the slots of this cache do not fit into int32")
        found = arrays.clone(_NARROW if narrow else _IDS, <Py_ssize_t>batch.size(), False)
        _fill_slots(cache.get(), batch.data(), batch.size(), found.data.as_voidptr, narrow)
        return found if device is None else _above_caches().slots_on(found, device)

    def blocks_at(self, slots):
        """The ids of the blocks that are in these slots now, as an `array('q')`; `NotMapped` if one of them is empty."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef IdBatch batch
        _take(slots, &batch)
        cdef arrays.array ids = arrays.clone(_IDS, <Py_ssize_t>batch.size(), False)
        check(cache.get().blocks_at(<const int64_t*>batch.data(), batch.size(), <CacheBlockId*>ids.data.as_voidptr))
        return ids

    def tensor(self, dtype, shape=(), *, plane=0):
        """One tensor over all slots of a plane: its shape is `(slot_count, *shape)`, and `slots` says where a block is.

        Only slots of live blocks have memory. Our own calls refuse others with `NotMapped`; code of others that
        touches a slot without a block reads what was there before, or faults. While the tensor lives, the cache
        cannot be closed.
        """
        cdef CacheRange whole
        self._open()
        number = self._check_plane(plane)
        if not self._tensors.add():
            raise errors.UseAfterRelease(0, what="the cache was closed")
        whole = CacheRange.__new__(CacheRange)
        whole._cache = self
        whole._held = True
        return _above_caches().tensor_over_cache(self, whole, dtype, shape, number)

    def copy_blocks(self, sources, destinations, stream=None):
        """Copy each block of `sources` into the one of `destinations` beside it, in every plane, in the stream's order.

        Until the stream has passed they are neither moved nor used again.
        """
        cdef SharedUse[NativeCache] cache = self._share()
        cdef IdBatch left, right
        cdef StreamId queue = stream_id(stream, self.driver.native)
        cdef Status status
        _take(sources, &left)
        _take(destinations, &right)
        if left.size() != right.size():
            raise errors.InvalidArgument(f"{left.size():,} blocks cannot be copied into {right.size():,}")
        with nogil:
            status = cache.get().copy(left.data(), right.data(), left.size(), queue)
        check(move(status))

    def view(self, number, *, plane=0):
        """The bytes of a block on the host, as a memoryview. While it is in use the block is pinned."""
        cdef _BlockView view = _BlockView.__new__(_BlockView)
        self._open()
        view._plane = self._check_plane(plane)
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
        cdef IdBatch batch
        _take(ids, &batch)
        check(cache.get().pin(batch.data(), batch.size()))

    def unpin(self, ids):
        """Let them move again. `InvalidArgument` if one is not pinned so often; then nothing has changed."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef IdBatch batch
        _take(ids, &batch)
        check(cache.get().unpin(batch.data(), batch.size()))

    def record_use(self, ids, stream):
        """Work queued on `stream` so far uses these blocks: until it is done they stay where they are."""
        cdef SharedUse[NativeCache] cache = self._share()
        cdef IdBatch batch
        _take(ids, &batch)
        cdef StreamId queue = stream_id(stream, self.driver.native)
        check(cache.get().record_use(batch.data(), batch.size(), queue))

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
        cdef IdBatch batch
        _take(() if candidates is None else candidates, &batch)
        cdef cbool any_block = candidates is None
        cdef vector[CacheBlockId] found
        cdef Status status
        with nogil:
            status = cache.get().eviction_hints(wanted, batch.data(), batch.size(), any_block, &found)
        check(move(status))
        return _ids_of(found)

    def _compact(self, max_bytes, max_seconds):
        # What was done, the ids that moved with their old and new slots, and the failure that stopped it, or None.
        cdef SharedUse[NativeCache] cache = self._share()
        cdef uint64_t bytes_limit = _UNLIMITED if max_bytes is None else size_of(max_bytes)
        cdef double seconds_limit = 1e30 if max_seconds is None else max_seconds
        cdef PackingReport report
        cdef Status status
        cdef size_t i
        if bytes_limit < cache.get().block_bytes() * cache.get().planes():
            raise errors.InvalidSize(bytes_limit,
                                     what=f"one block has {cache.get().block_bytes() * cache.get().planes():,} bytes")
        if not seconds_limit > 0:
            raise errors.InvalidArgument(f"max_seconds is a time above 0, not {max_seconds!r}")
        with nogil:
            status = cache.get().compact(bytes_limit, seconds_limit, &report)
        cdef arrays.array ids = arrays.clone(_IDS, <Py_ssize_t>report.moves.size(), False)
        cdef arrays.array old = arrays.clone(_IDS, <Py_ssize_t>report.moves.size(), False)
        cdef arrays.array new = arrays.clone(_IDS, <Py_ssize_t>report.moves.size(), False)
        for i in range(report.moves.size()):
            ids.data.as_longlongs[i] = <long long>report.moves[i].id
            old.data.as_longlongs[i] = report.moves[i].source
            new.data.as_longlongs[i] = report.moves[i].to
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

    def _begin_suspension(self):
        # What there is to keep: address and size of every block, in every plane; as one where they touch.
        cdef SharedUse[NativeCache] cache = self._share()
        cdef vector[uint32_t] places
        check(cache.get().begin_suspension())
        check(cache.get().live_blocks(&places))
        cdef uint64_t plane, i, length, size = cache.get().block_bytes()
        found = []
        for plane in range(cache.get().planes()):
            i = 0
            while i < places.size():
                length = 1
                while i + length < places.size() and size == cache.get().stride() and places[i + length] == places[i] + length:
                    length += 1
                found.append((cache.get().address_of(places[i]) + plane * cache.get().plane_bytes(), length * size))
                i += length
        return found

    def _drop_memory(self):
        cdef SharedUse[NativeCache] cache = self._share()
        cdef Status status
        with nogil:
            status = cache.get().drop_memory()
        check(move(status))

    def _restore_memory(self):
        cdef SharedUse[NativeCache] cache = self._share()
        cdef Status status
        with nogil:
            status = cache.get().restore_memory()
        if not status.ok():
            refuse(self, move(status), 0)

    def _cancel_suspension(self):
        self._open().cancel_suspension()

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

    def set_release_threshold(self, release_threshold, demand_blocks=0):
        """How many bytes of empty pages to keep for reuse from now on, at most; None for all. With `demand_blocks`, only
        as many as were in use of late: before the last so many blocks ended.
        """
        cdef SharedUse[NativeCache] cache = self._share()
        cdef uint64_t idle = _UNLIMITED if release_threshold is None else size_of(release_threshold)
        cdef double window = _check_window(demand_blocks)
        with nogil:
            cache.get().set_retention(idle, window)

    # --- Looking ---

    def _stats(self):
        cdef BlockCacheStats stats = self._open().stats()
        return {
            "block_size": stats.block_bytes,
            "page_size": stats.page_bytes,
            "planes": stats.planes,
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

    def close(self, timeout=None):
        """Wait for the streams that use it, and give everything back, whatever is still in it. `TimedOut` when they take
        longer than `timeout` seconds: nothing is changed. `StillHeld`, a `BufferError`, while blocks are pinned or viewed,
        or calls of other threads are under way. Closing twice is harmless.
        """
        cdef shared_ptr[NativeCache] native
        cdef uint64_t most = timeout_of(timeout)
        cdef Status status
        if self.closed or self.native.get() is NULL:
            return
        native = self.native
        if native.get() is NULL:
            return
        _check_not_pinned(native.get())
        with nogil:
            status = native.get().wait_before_end(Wait.of_caller(most))
        check(move(status))
        _check_not_pinned(native.get())
        native.reset()
        if not self._tensors.close():
            if self.closed:
                return
            raise errors.StillHeld(self.native.get().base(), self._tensors.count(), what="tensors over the cache are in use")
        if not self._tables.close():
            self._tensors.reopen()
            if self.closed:
                return
            raise errors.StillHeld(self.native.get().base(), self._tables.count(), what="block tables use the cache")
        if not self._uses.close():
            self._tensors.reopen()
            self._tables.reopen()
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
        self._begin_use()
        return SharedUse[NativeCache](self.native, &self._uses)

    def _begin_use(self):
        # Until `_end_use` nobody can close the cache.
        self._open()
        if not self._uses.add():
            raise errors.UseAfterRelease(0, what="the cache was closed")

    def _end_use(self):
        self._uses.remove()

    cdef uint64_t _check_plane(self, object plane) except? 0xFFFFFFFFFFFFFFFF:
        try:
            number = operator.index(plane)
        except TypeError:
            raise errors.InvalidArgument(f"a plane is an integer, not {plane!r}") from None
        if not 0 <= number < self._open().planes():
            raise errors.InvalidArgument(f"the cache has planes 0 to {self._open().planes() - 1}, not {number}")
        return number

    cdef LocalBudget* _own_limit(self):
        return <LocalBudget*>self.native.get().budget().get()
