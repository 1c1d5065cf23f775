"""Owns: elastic pools as Python sees them: addresses in plenty, pages where they are used, blocks that may move.

Must not know: how contents are kept over a suspension; `tensormem.pools` does that with the parts here.
"""
import weakref

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector

from tensormem._core.construction cimport begin_construction, only_the_core_makes
from tensormem._core.resource cimport SharedUse, budget_or_limit, tag_or_current
from tensormem._core.base cimport (
    Driver,
    alignment_of,
    place_name,
    refuse,
    report_unraisable,
    size_of,
    stream_id,
    timeout_of,
)
from tensormem._core.failures cimport check
from tensormem._core.native cimport Status, StreamId, TagId, Wait, is_used, tag_text
from tensormem._core.native_pool cimport (
    BudgetPtr,
    CompactionLimits,
    CompactionReport,
    LocalBudget,
    PoolBlockId,
    VirtualPoolOptions,
    VirtualPoolStats,
)
from tensormem._core.native_pool cimport PoolBlock as NativeBlock
from tensormem._core.native_pool cimport VirtualMemoryPool as NativePool
from tensormem._core.native_trace cimport trace_drop_stack, trace_hold_stack

from tensormem import errors
from tensormem.units import format_size

cdef uint64_t _UNLIMITED = 0x7FFFFFFFFFFFFFFF


# Not cleared by the collector: a block in a cycle still needs its pool, to give itself back.
@cython.final
@cython.no_gc_clear
cdef class PoolBlock:
    """Memory in a pool whose place the pool found. Dropping it gives it back.

    A movable block may get another address when its pool is compacted: ask `address` every time, or `hold()` it.

    >>> from tensormem.pools import VirtualMemoryPool
    >>> with VirtualMemoryPool("1GiB") as pool:
    ...     block = pool.allocate(size="3MiB", movable=True)
    ...     with block.hold() as address:
    ...         address == block.address, block.size
    ...     pool.deallocate(block)
    (True, 3145728)
    """

    def __dealloc__(self):
        cdef shared_ptr[NativePool] pool
        if not self._owned:
            return
        with nogil:
            pool = self._native.lock()
            if pool.get() is not NULL:
                pool.get().drop(self._id)
            pool.reset()

    cdef NativeBlock _look(self) except *:
        cdef NativeBlock found
        check(self.pool._open().find(self._id, &found))
        return found

    @property
    def offset(self):
        """Where it is in its pool now."""
        return self._look().offset

    @property
    def address(self):
        """Where it is now."""
        return self.pool._open().base() + self._look().offset

    @property
    def size(self):
        """In bytes."""
        return self._look().size

    @property
    def tag(self):
        """What it was called; "untagged" if nothing."""
        text = tag_text(self._look().tag)
        return text.data()[:text.size()].decode()

    @property
    def movable(self):
        """Whether compaction may give it another address."""
        return self._look().movable

    @property
    def suspended(self):
        """Whether it has an address and no memory."""
        return self._look().suspended

    @property
    def generation(self):
        """Changes when its memory does: it moved, or came back from a suspension."""
        return self._look().generation

    @property
    def live(self):
        """Whether it was not given back."""
        cdef NativeBlock found
        return self.pool.native.get() is not NULL and self.pool.native.get().find(self._id, &found).ok()

    def hold(self):
        """A `with` block in which it stays where it is; gives the address."""
        return _Hold(self)

    def __index__(self):
        return self.address

    def _begin_use(self, Driver driver=None):
        # The address at which it stays until `_end_use`, for a call of `driver` if one is named.
        cdef uint64_t offset = 0
        if driver is not None and driver.name == "host" and self.pool.driver.name != "host":
            raise errors.InvalidArgument(f"the CPU cannot touch {self!r}; use the driver of its device")
        check(self.pool._open().hold(self._id, &offset))
        return self.pool._open().base() + offset

    def _end_use(self):
        self.pool._open().let_go(self._id)

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef uint64_t offset = 0
        cdef NativeBlock found
        if self.pool.driver.name != "host":
            raise BufferError(f"memory on {self.pool.where} cannot be read by the host: copy it")
        check(self.pool._open().hold(self._id, &offset))
        try:
            found = self._look()  # held: from here on it stays as it is
            if found.suspended:
                raise BufferError("the block is suspended: it has no memory")
            PyBuffer_FillInfo(view, self, <void*>(self.pool._open().base() + offset), found.size, 0, flags)
        except BaseException:
            check(self.pool._open().let_go(self._id))
            raise

    def __releasebuffer__(self, Py_buffer* view):
        self.pool._open().let_go(self._id)

    def __repr__(self):
        cdef NativeBlock found
        if not self.live:
            return f"<PoolBlock {self._id}, given back>"
        found = self._look()
        kind = "movable" if found.movable else "pinned"
        state = ", suspended" if found.suspended else ""
        return f"<PoolBlock of {format_size(found.size)} at offset {found.offset:#x}, {kind}, tag {self.tag!r}{state}>"

    def __reduce__(self):
        raise TypeError("a block of a pool belongs to one process and cannot be pickled")


only_the_core_makes(PoolBlock, b"blocks come from VirtualMemoryPool.allocate")


cdef class _Hold:
    cdef PoolBlock _block

    def __cinit__(self, PoolBlock block not None):
        self._block = block

    def __enter__(self):
        return self._block._begin_use()

    def __exit__(self, *failure):
        check(self._block.pool._open().let_go(self._block._id))


cdef class VirtualMemoryPool:
    """See `tensormem.pools.VirtualMemoryPool`, which finds the driver by name and keeps contents over a suspension."""

    def __init__(self, Driver driver not None, int32_t device, capacity, page_size, *, physical_limit=None, budget=None,
                 release_threshold=None, low_water=0, bint background=False):
        begin_construction(self._construction, self)
        cdef VirtualPoolOptions options
        cdef BudgetPtr admitted
        cdef uint64_t page = size_of(page_size)
        cdef Status status
        admitted = budget_or_limit(budget, physical_limit, driver, device)
        options.capacity = size_of(capacity)
        options.page_bytes = page
        options.device = device
        if release_threshold is not None:
            options.cache.high_pages = size_of(release_threshold) // (page or 1)
        options.cache.low_pages = size_of(low_water) // (page or 1)
        options.cache.background = background
        if options.cache.low_pages > options.cache.high_pages:
            raise errors.InvalidArgument("the low water is above the release threshold")
        with nogil:
            status = NativePool.open(driver.native[0], options, admitted, &self.native)
        check(move(status))
        self.driver = driver
        self.device = device
        self.budget = budget
        self._blocks = weakref.WeakValueDictionary()

    # --- Who it is ---

    @property
    def where(self):
        """The device by name: "host", "cuda:0", "rocm:1"."""
        return place_name(self.driver, self.device)

    @property
    def base_address(self):
        """The address of offset 0."""
        return self._open().base()

    @property
    def capacity(self):
        """The bytes of addresses."""
        return self._open().capacity()

    @property
    def page_size(self):
        """In what steps memory comes and goes."""
        return self._open().page_bytes()

    @property
    def physical_memory_usage(self):
        """The bytes of memory it has now: mapped, and kept for reuse."""
        return self._open().physical_bytes()

    @property
    def physical_limit(self):
        """The most that its budget admits, for all who share it; None without a limit."""
        cdef uint64_t limit
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
        self._fit_budget()

    cdef _fit_budget(self):
        # Pages kept for reuse are the first to go when the limit is lowered.
        cdef SharedUse[NativePool] pool = self._share()
        cdef uint64_t page = pool.get().page_bytes()
        cdef uint64_t used = pool.get().budget().get().used()
        cdef uint64_t limit = pool.get().budget().get().limit()
        cdef uint64_t cached = pool.get().stats().cached_pages
        cdef uint64_t over = (used - limit + page - 1) // page if used > limit else 0
        with nogil:
            if over != 0:
                pool.get().cache().trim(cached - over if over < cached else 0)

    # --- Places that the caller names ---

    cdef uint64_t _allocate_at(self, object offset, object size, object tag) except? 0:
        cdef uint64_t start = size_of(offset)
        cdef uint64_t nbytes = size_of(size)
        cdef TagId named = tag_or_current(tag)
        cdef SharedUse[NativePool] pool = self._share()
        cdef Status status
        trace_hold_stack()
        with nogil:
            status = pool.get().allocate_at(start, nbytes, named)
        trace_drop_stack()
        if not status.ok():
            refuse(self, move(status), named)
        return pool.get().base() + start

    def is_mapped(self, offset, size):
        """Whether every page of the range has memory. False outside the pool, and for no bytes."""
        return self._open().is_mapped(size_of(offset), size_of(size))

    # --- Both kinds of places ---

    def allocate(self, offset=None, size=..., *, alignment=256, movable=False, on_move=None, tag=None):
        """Memory at an offset, in whole pages: `allocate(offset, size)` gives the address. Or where the pool finds room:
        `allocate(size=...)` gives a `PoolBlock`; small ones share pages.

        A block is `movable` if told, or if it has `on_move(block, old_address, new_address)`, called after each move.
        """
        if size is ... or size is None:
            raise errors.InvalidArgument("say how much: allocate(offset, size), or allocate(size=...)")
        if offset is not None:
            if movable or on_move is not None:
                raise errors.InvalidArgument("what is put at an offset stays there: it cannot be movable")
            return self._allocate_at(offset, size, tag)
        if on_move is not None and not callable(on_move):
            raise errors.InvalidArgument("on_move is a function")
        return self._allocate(size, alignment, movable or on_move is not None, on_move, tag)

    cdef PoolBlock _allocate(self, object size, object alignment, bint movable, object on_move, object tag):
        cdef PoolBlock block = PoolBlock.__new__(PoolBlock)
        cdef uint64_t nbytes = size_of(size)
        cdef uint64_t boundary = alignment_of(alignment)
        cdef TagId named = tag_or_current(tag)
        cdef SharedUse[NativePool] pool = self._share()
        cdef PoolBlockId made = 0
        cdef Status status
        trace_hold_stack()
        with nogil:
            status = pool.get().allocate(nbytes, boundary, movable, named, &made)
        trace_drop_stack()
        if not status.ok():
            refuse(self, move(status), named)
        block.pool = self
        block.on_move = on_move
        block._native = <weak_ptr[NativePool]>pool.shared()
        block._id = made
        block._owned = True
        self._blocks[made] = block
        return block

    def deallocate(self, offset, size=None, stream=None):
        """Give back a block, or whole pages at an offset, after the work queued on `stream` and after every recorded
        use. The memory returns when that is done; nothing waits for it.
        """
        cdef SharedUse[NativePool] pool = self._share()
        cdef StreamId queue = stream_id(stream, self.driver.native)
        cdef uint64_t start, nbytes
        cdef PoolBlockId which
        cdef Status status
        if isinstance(offset, PoolBlock):
            which = self._own(offset, size)
            trace_hold_stack()
            with nogil:
                status = pool.get().deallocate(which, queue)
            trace_drop_stack()
            check(move(status))
            (<PoolBlock>offset)._owned = False
            return
        start = size_of(offset)
        nbytes = size_of(size)
        trace_hold_stack()
        with nogil:
            status = pool.get().deallocate_at(start, nbytes, queue)
        trace_drop_stack()
        check(move(status))

    def record_use(self, offset, size=None, stream=None):
        """Work queued on `stream` so far uses this block, or this range: its memory stays until that is done."""
        cdef SharedUse[NativePool] pool = self._share()
        cdef StreamId queue = stream_id(stream, self.driver.native)
        if isinstance(offset, PoolBlock):
            check(pool.get().record_use(self._own(offset, size), queue))
        else:
            check(pool.get().record_use_at(size_of(offset), size_of(size), queue))

    def reap_pending(self):
        """Take back what was given back on streams that have passed since."""
        cdef SharedUse[NativePool] pool = self._share()
        cdef Status status
        with nogil:
            status = pool.get().reap_pending()
        check(move(status))

    # --- Blocks ---

    def grow(self, PoolBlock block not None, size):
        """Make a block larger, in place where there is room; a movable one may move, with its contents."""
        if size_of(size) < block.size:
            raise errors.InvalidSize(size, what=f"the block has {block.size:,} bytes already")
        self._tell_resized(block, size)

    def _tell_resized(self, PoolBlock block, size):
        # Whatever comes of it, owners learn of a new place.
        cdef tuple told = self._resize(block, size)
        old, new, failure = told
        raised = None
        if old != new and block.on_move is not None:
            try:
                block.on_move(block, old, new)
            except Exception as error:
                raised = error
        if failure is not None:
            raise failure
        if raised is not None:
            raise errors.CallbackFailed(f"on_move raised {raised!r}") from raised

    def shrink(self, PoolBlock block not None, size):
        """Make a block smaller; the pages behind its new end go back."""
        if size_of(size) > block.size:
            raise errors.InvalidSize(size, what=f"the block has {block.size:,} bytes")
        self._tell_resized(block, size)

    cdef tuple _resize(self, PoolBlock block, object size):
        # Where it was, where it is, and what went wrong.
        cdef SharedUse[NativePool] pool = self._share()
        cdef PoolBlockId which = self._own(block, None)
        cdef uint64_t nbytes = size_of(size)
        cdef uint64_t before = block.address
        cdef Status status
        trace_hold_stack()
        with nogil:
            status = pool.get().resize(which, nbytes)
        trace_drop_stack()
        failure = None
        try:
            if not status.ok():
                refuse(self, move(status), block._look().tag)
        except errors.TensormemError as error:
            failure = error
        return before, block.address if block.live else before, failure

    # --- Compaction ---

    def _compact(self, max_bytes, max_seconds):
        # What the native report says, and the blocks that moved: (block or None, old address, new address).
        cdef SharedUse[NativePool] pool = self._share()
        cdef CompactionLimits limits
        cdef CompactionReport report
        cdef Status status
        if max_bytes is not None:
            limits.max_bytes = size_of(max_bytes)
        if max_seconds is not None:
            if not max_seconds >= 0:
                raise errors.InvalidArgument(f"max_seconds is a number of seconds, not {max_seconds!r}")
            limits.max_seconds = max_seconds
        with nogil:
            status = pool.get().compact(limits, &report)
        base = pool.get().base()
        moved = [
            (self._blocks.get(report.moves[i].id), base + report.moves[i].old_offset, base + report.moves[i].new_offset)
            for i in range(report.moves.size())
        ]
        failure = None
        try:
            check(move(status))
        except errors.TensormemError as error:
            failure = error
        return {
            "blocks_moved": report.moves.size(),
            "pages_remapped": report.remapped_pages,
            "bytes_copied": report.copied_bytes,
            "pages_released": report.released_pages,
            "seconds": report.seconds,
            "finished": report.finished,
        }, moved, failure

    # --- Suspension: the parts ---

    def _hold_tagged(self, tag):
        # (id, address, size, suspension) of what carries the tag and has memory; each is held until `_let_go` or
        # `_suspend`.
        cdef vector[NativeBlock] found
        cdef TagId named = tag_or_current(tag)
        cdef SharedUse[NativePool] pool = self._share()
        check(pool.get().hold_tagged(named, &found))
        return _places(pool.get().base(), found)

    def _list_suspended(self, tag):
        cdef vector[NativeBlock] found
        cdef TagId named = tag_or_current(tag)
        cdef SharedUse[NativePool] pool = self._share()
        check(pool.get().list_suspended(named, &found))
        return _places(pool.get().base(), found)

    def _has_suspended(self, uint64_t suspension):
        return self._open().has_suspended(suspension)

    def _let_go(self, ids):
        cdef SharedUse[NativePool] pool = self._share()
        for which in ids:
            check(pool.get().let_go(which))

    def _suspend(self, ids, uint64_t suspension):
        # 0: under the number it had before.
        cdef vector[PoolBlockId] which = ids
        cdef SharedUse[NativePool] pool = self._share()
        cdef Status status
        with nogil:
            status = pool.get().suspend(which, suspension)
        check(move(status))

    def _resume(self, ids):
        # They are held until `_let_go` or `_suspend`.
        cdef vector[PoolBlockId] which = ids
        cdef SharedUse[NativePool] pool = self._share()
        cdef Status status
        with nogil:
            status = pool.get().resume(which)
        if not status.ok():
            refuse(self, move(status), 0)

    # --- The cache ---

    def trim(self, keep_bytes=0):
        """Give back the pages kept for reuse until at most `keep_bytes` of them are left; says how many bytes went."""
        cdef SharedUse[NativePool] pool = self._share()
        cdef uint64_t keep = size_of(keep_bytes) // pool.get().page_bytes()
        cdef uint64_t gone
        self.reap_pending()
        with nogil:
            gone = pool.get().cache().trim(keep)
        return gone * pool.get().page_bytes()

    def step_ahead(self, max_bytes=None):
        """Make pages until the low water is reached, or `max_bytes` are made; says how many bytes. What the background
        thread does by itself.
        """
        cdef SharedUse[NativePool] pool = self._share()
        cdef uint64_t most = _UNLIMITED if max_bytes is None else size_of(max_bytes) // pool.get().page_bytes()
        cdef uint64_t made
        with nogil:
            made = pool.get().cache().step_ahead(most)
        return made * pool.get().page_bytes()

    def set_watermarks(self, low_water, release_threshold):
        """How many bytes of unused pages to make ahead, and how many to keep at most."""
        cdef SharedUse[NativePool] pool = self._share()
        cdef uint64_t low = size_of(low_water) // pool.get().page_bytes()
        cdef uint64_t high = size_of(release_threshold) // pool.get().page_bytes()
        if low > high:
            raise errors.InvalidArgument("the low water is above the release threshold")
        with nogil:
            pool.get().cache().set_water(low, high)

    # --- Looking ---

    def _stats(self):
        cdef VirtualPoolStats stats = self._open().stats()
        return {
            "virtual_capacity": stats.capacity,
            "page_size": stats.page_bytes,
            "mapped_pages": stats.mapped_pages,
            "cached_pages": stats.cached_pages,
            "physical_usage": stats.physical_bytes,
            "peak_physical_usage": stats.peak_physical_bytes,
            "live_bytes": stats.live_bytes,
            "live_blocks": stats.live_blocks,
            "retired_bytes": stats.retired_bytes,
            "suspended_bytes": stats.suspended_bytes,
            "total_free": stats.total_free,
            "largest_free": stats.largest_free,
            "created_pages": stats.created_pages,
            "recycled_pages": stats.recycled_pages,
        }

    def _is_valid(self):
        return self._open().is_valid()

    # --- The end ---

    cdef _check_not_viewed(self):
        for block in list(self._blocks.values()):
            _check_not_held(block)
        cdef shared_ptr[NativePool] native = self.native
        if native.get() is not NULL and is_used(native.get().base(), native.get().capacity()):
            raise errors.StillHeld(native.get().base(), 1, what="a call was given an address of the pool")

    def close(self, timeout=None):
        """Wait for the streams that use it, and give everything back, whatever is still in it. `TimedOut` when they take
        longer than `timeout` seconds: nothing is changed. `StillHeld`, a `BufferError`, while views of blocks are in use,
        or calls of other threads are under way. Closing twice is harmless.
        """
        cdef shared_ptr[NativePool] native
        cdef uint64_t most = timeout_of(timeout)
        cdef Status status
        if self.closed or self.native.get() is NULL:
            return
        self._check_not_viewed()
        native = self.native
        if native.get() is not NULL:
            with nogil:
                status = native.get().wait_before_end(Wait.of_caller(most))
            native.reset()
            check(move(status))
        self._check_not_viewed()
        if not self._uses.close():
            if self.closed:
                return
            raise errors.StillHeld(self.native.get().base(), self._uses.count(),
                                   what="calls of other threads use the pool")
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
            return "<VirtualMemoryPool, closed>"
        return (
            f"<VirtualMemoryPool of {format_size(self.capacity)} on {self.where}: "
            f"{format_size(self.physical_memory_usage)} of memory in pages of {format_size(self.page_size)}>"
        )

    def __reduce__(self):
        raise TypeError("a pool belongs to one process and cannot be pickled")

    # --- Checks ---

    cdef NativePool* _open(self) except NULL:
        if self.native.get() is NULL:
            raise errors.UseAfterRelease(0, what="the pool was closed" if self.closed else "the pool was not made")
        return self.native.get()

    # For the length of a call, which counts as a user of the pool.
    cdef SharedUse[NativePool] _share(self) except *:
        self._begin_use()
        return SharedUse[NativePool](self.native, &self._uses)

    def _begin_use(self):
        # Until `_end_use` nobody can close the pool.
        self._open()
        if not self._uses.add():
            raise errors.UseAfterRelease(0, what="the pool was closed")

    def _end_use(self):
        self._uses.remove()

    cdef LocalBudget* _own_limit(self):
        return <LocalBudget*>self.native.get().budget().get()

    cdef PoolBlockId _own(self, object block, object size) except 0:
        if size is not None:
            raise errors.InvalidArgument("a block knows its size: give the block alone")
        if (<PoolBlock>block).pool is not self:
            raise errors.ForeignBlock((<PoolBlock>block)._id, 0, what="the block is of another pool")
        return (<PoolBlock>block)._id


cdef list _places(uint64_t base, const vector[NativeBlock]& found):
    return [(found[i].id, base + found[i].offset, found[i].size, found[i].suspension) for i in range(found.size())]


cdef int _check_not_held(PoolBlock block) except -1:
    cdef NativeBlock found
    if block.pool.native.get().find(block._id, &found).ok() and found.holds:
        raise errors.StillHeld(block.pool.native.get().base() + found.offset, found.holds)
    return 0
