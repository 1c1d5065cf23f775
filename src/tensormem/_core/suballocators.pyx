# cython: language_level=3, freethreading_compatible=True
"""Owns: the resources that take large pieces from an upstream and cut them up."""
from libc.stdint cimport uint64_t
from libcpp.memory cimport shared_ptr, static_pointer_cast

from tensormem._core.failures cimport check
from tensormem._core.native cimport PoolMemoryResource as NativePool
from tensormem._core.native cimport PoolOptions, PoolUsage, Resource
from tensormem._core.resources cimport DeviceMemoryResource, upstream_of
from tensormem._core.sizes cimport size_of

from tensormem.units import format_size


cdef class PoolMemoryResource(DeviceMemoryResource):
    """Memory taken from an upstream in chunks and cut into blocks of any size, in constant time.

    It starts with `initial_pool_size`, grows to at most `maximum_pool_size`, and gives chunks that are empty back to the
    upstream: on `trim()`, and at once while it holds more than `release_threshold`.

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

    def __init__(self, upstream_mr, initial_pool_size=None, maximum_pool_size=None, *, release_threshold=None):
        cdef DeviceMemoryResource upstream = upstream_of(upstream_mr)
        cdef PoolOptions options
        if initial_pool_size is not None:
            options.initial_bytes = size_of(initial_pool_size)
        if maximum_pool_size is not None:
            options.maximum_bytes = size_of(maximum_pool_size)
        if release_threshold is not None:
            options.release_threshold = size_of(release_threshold)
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
