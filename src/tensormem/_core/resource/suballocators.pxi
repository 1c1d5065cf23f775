"""Owns: the resources that take large pieces from an upstream and cut them up."""
from libc.stdint cimport uint32_t, uint64_t
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast

from tensormem._core.construction cimport begin_construction
from tensormem._core.failures cimport check
from tensormem._core.native cimport ArenaMemoryResource as NativeArena
from tensormem._core.native cimport BinningMemoryResource as NativeBinning
from tensormem._core.native cimport PoolMemoryResource as NativePool
from tensormem._core.native cimport PoolOptions, PoolUsage, Resource
from tensormem._core.base cimport size_of

from tensormem import errors
from tensormem.units import format_size


cdef uint64_t _nanoseconds(object seconds) except? 0xFFFFFFFFFFFFFFFF:
    # A century is for ever, and fits.
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise errors.InvalidArgument(f"pending_timeout is a number of seconds, 0 or more, not {seconds!r}")
    return int(min(seconds, 100 * 365 * 86400) * 10**9)


cdef class PoolMemoryResource(DeviceMemoryResource):
    """Memory taken from an upstream in chunks and cut into blocks of any size, in constant time.

    It starts with `initial_pool_size` and grows to at most `maximum_pool_size`, by what is missing: a block of 256 KiB
    or more gets a chunk of its size, smaller ones share slabs. Chunks that are empty go back to the upstream: on
    `trim()`, at once while it holds more than `release_threshold`, and before it takes more than it ever had. When it
    can neither serve nor grow, a caller on the host's default stream waits up to `pending_timeout` seconds for memory that other streams still
    hold; after that, or with 0 at once, it is `OutOfMemory`.

    >>> import tensormem as tm
    >>> pool = tm.mr.PoolMemoryResource(tm.mr.HostMemoryResource(), "1MiB", "64MiB")
    >>> block = pool.allocate("300KiB")
    >>> pool.pool_size, pool.largest_free
    (1048576, 741376)
    >>> del block
    >>> pool.trim()
    1048576
    """

    cdef shared_ptr[NativePool] _pool

    def __init__(self, upstream_mr, initial_pool_size=None, maximum_pool_size=None, *, release_threshold=None,
                 pending_timeout=10.0):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        cdef PoolOptions options
        if initial_pool_size is not None:
            options.initial_bytes = size_of(initial_pool_size)
        if maximum_pool_size is not None:
            options.maximum_bytes = size_of(maximum_pool_size)
        if release_threshold is not None:
            options.release_threshold = size_of(release_threshold)
        options.pending_timeout_ns = _nanoseconds(pending_timeout)
        check(NativePool.create(upstream._owner, options, &self._pool))
        self.adopt(static_pointer_cast[Resource, NativePool](self._pool), upstream.driver, upstream)

    @property
    def pool_size(self):
        """Bytes taken from the upstream."""
        return self._usage().reserved_bytes

    @property
    def total_free(self):
        """Bytes that are free for every stream."""
        return self._usage().total_free

    @property
    def largest_free(self):
        """The largest block that fits without growing."""
        return self._usage().largest_free

    @property
    def pending_bytes(self):
        """Bytes that are free for one stream only, until that stream has passed."""
        return self._usage().pending_bytes

    @property
    def fragmentation(self):
        """1 - largest_free / total_free; 0 when nothing is free."""
        return self._usage().fragmentation()

    def trim(self, keep_bytes=0):
        """Give empty chunks back to the upstream until at most `keep_bytes` are held; says how many bytes went."""
        cdef uint64_t released = 0
        self._check_open()
        check(self._pool.get().trim(size_of(keep_bytes), &released))
        return released

    def describe(self):
        """One line about this pool."""
        return f"PoolMemoryResource: {format_size(self.bytes_outstanding)} of {format_size(self.pool_size)} in use"

    cdef PoolUsage _usage(self) except *:
        self._check_open()
        return self._pool.get().usage()


cdef class FixedSizeMemoryResource(DeviceMemoryResource):
    """Blocks of one size, taken from an upstream `blocks_to_preallocate` at a time. Nothing larger than `block_size` fits.

    >>> import tensormem as tm
    >>> mr = tm.mr.FixedSizeMemoryResource(tm.mr.HostMemoryResource(), "64KiB", 16)
    >>> block = mr.allocate(1000)
    >>> mr.allocate("65KiB")
    Traceback (most recent call last):
    ...
    tensormem.errors.OutOfMemory: ...
    """

    cdef shared_ptr[NativePool] _pool
    cdef readonly uint64_t block_size
    cdef readonly uint64_t blocks_to_preallocate

    def __init__(self, upstream_mr, block_size="1MiB", blocks_to_preallocate=128):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        cdef PoolOptions options
        self.block_size = size_of(block_size)
        if self.block_size == 0:
            raise errors.InvalidSize(block_size, what="a block has at least one byte")
        if not isinstance(blocks_to_preallocate, int) or not 1 <= blocks_to_preallocate <= 1 << 20:
            raise errors.InvalidArgument(f"blocks_to_preallocate is 1 to {1 << 20}, not {blocks_to_preallocate!r}")
        self.blocks_to_preallocate = blocks_to_preallocate
        options.block_bytes = self.block_size
        options.chunk_bytes = (self.block_size + 255) // 256 * 256 * self.blocks_to_preallocate
        check(NativePool.create(upstream._owner, options, &self._pool))
        self.adopt(static_pointer_cast[Resource, NativePool](self._pool), upstream.driver, upstream)

    def trim(self, keep_bytes=0):
        """Give empty chunks back to the upstream until at most `keep_bytes` are held; says how many bytes went."""
        cdef uint64_t released = 0
        self._check_open()
        check(self._pool.get().trim(size_of(keep_bytes), &released))
        return released

    def describe(self):
        """One line about these blocks."""
        return f"FixedSizeMemoryResource: blocks of {format_size(self.block_size)}, {self.counters['current_count']} out"


cdef class BinningMemoryResource(DeviceMemoryResource):
    """Chooses by size: the smallest bin that a block fits in; what fits in none comes from the upstream.

    Bins of the sizes 2**min_size_exponent to 2**max_size_exponent are made at once, others by `add_bin`, before the first
    block is out.

    >>> import tensormem as tm
    >>> mr = tm.mr.BinningMemoryResource(tm.mr.HostMemoryResource(), 16, 18)
    >>> mr.bin_sizes
    [65536, 131072, 262144]
    >>> block = mr.allocate("100KiB")
    """

    cdef shared_ptr[NativeBinning] _binning
    cdef readonly list bin_mrs

    def __init__(self, upstream_mr, min_size_exponent=None, max_size_exponent=None):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        if (min_size_exponent is None) != (max_size_exponent is None):
            raise errors.InvalidArgument("give both exponents, or none and add_bin by yourself")
        self._binning = make_shared[NativeBinning](upstream._owner)
        self.bin_mrs = []
        self.adopt(static_pointer_cast[Resource, NativeBinning](self._binning), upstream.driver, upstream)
        if min_size_exponent is not None:
            if not 0 <= min_size_exponent <= max_size_exponent <= 40:
                raise errors.InvalidArgument(
                    f"exponents rise from 0 to 40, not from {min_size_exponent} to {max_size_exponent}")
            for exponent in range(min_size_exponent, max_size_exponent + 1):
                self.add_bin(1 << exponent)

    @property
    def bin_sizes(self):
        """The largest size of each bin."""
        self._check_open()
        return self._binning.get().bin_sizes()

    def add_bin(self, allocation_size, bin_resource=None):
        """Serve blocks of up to `allocation_size` from `bin_resource`, or from fixed-size blocks of the upstream."""
        cdef DeviceMemoryResource resource
        self._check_open()
        if bin_resource is None:
            bin_resource = FixedSizeMemoryResource(self.upstream_mr, allocation_size)
        resource = upstream_of(bin_resource)
        check(self._binning.get().add_bin(size_of(allocation_size), resource._owner))
        self.bin_mrs.append(resource)

    def describe(self):
        """One line about the bins."""
        sizes = self.bin_sizes
        span = f"{format_size(sizes[0])} to {format_size(sizes[-1])}" if sizes else "none"
        return f"BinningMemoryResource: {len(sizes)} bins, {span}"


cdef class ArenaMemoryResource(DeviceMemoryResource):
    """A pool per handful of threads, so that threads do not wait for one another.

    `arena_size` limits what all of them take from the upstream together; `pending_timeout` is that of a pool.

    >>> import tensormem as tm
    >>> mr = tm.mr.ArenaMemoryResource(tm.mr.HostMemoryResource(), "64MiB")
    >>> mr.deallocate(mr.allocate("1MiB"))
    >>> mr.trim() > 0
    True
    """

    cdef shared_ptr[NativeArena] _arena

    def __init__(self, upstream_mr, arena_size=None, *, arenas=None, pending_timeout=10.0):
        begin_construction(self._construction, self)
        cdef uint32_t count = NativeArena.default_arena_count()
        cdef uint64_t patience = _nanoseconds(pending_timeout)
        cdef DeviceMemoryResource upstream
        if arenas is not None:
            if not isinstance(arenas, int) or not 1 <= arenas <= 64:
                raise errors.InvalidArgument(f"there are 1 to 64 arenas, not {arenas!r}")
            count = arenas
        if arena_size is not None:

            upstream_mr = LimitingResourceAdaptor(upstream_mr, arena_size)
        upstream = upstream_of(upstream_mr)
        check(NativeArena.create(upstream._owner, count, &self._arena, patience))
        self.adopt(static_pointer_cast[Resource, NativeArena](self._arena), upstream.driver, upstream)

    @property
    def arena_count(self):
        """How many pools there are."""
        self._check_open()
        return self._arena.get().arena_count()

    @property
    def pool_size(self):
        """Bytes taken from the upstream."""
        return self._usage().reserved_bytes

    @property
    def total_free(self):
        """Bytes that are free for every stream."""
        return self._usage().total_free

    @property
    def largest_free(self):
        """The largest block that fits without growing."""
        return self._usage().largest_free

    @property
    def fragmentation(self):
        """1 - largest_free / total_free; 0 when nothing is free."""
        return self._usage().fragmentation()

    def trim(self):
        """Give empty chunks back to the upstream; says how many bytes went."""
        cdef uint64_t released = 0
        self._check_open()
        check(self._arena.get().trim(&released))
        return released

    def describe(self):
        """One line about the arenas."""
        return (f"ArenaMemoryResource: {self.arena_count} arenas, {format_size(self.bytes_outstanding)} of "
                f"{format_size(self.pool_size)} in use")

    cdef PoolUsage _usage(self) except *:
        self._check_open()
        return self._arena.get().usage()
