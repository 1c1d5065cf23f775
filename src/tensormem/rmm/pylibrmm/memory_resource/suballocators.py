"""Owns: the resources that cut up an upstream's memory, by RMM's names. Must not know: which resource is current."""

from tensormem import errors, mr
from tensormem.rmm.pylibrmm.helper import parse_bytes
from tensormem.rmm.pylibrmm.memory_resource.device_memory_resource import DeviceMemoryResource
from tensormem.rmm.pylibrmm.memory_resource.upstream_resource_adaptor import (
    UpstreamResourceAdaptor,
    resource_of,
    wrapped,
)

__all__ = [
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "FixedSizeMemoryResource",
    "InvalidPoolSize",
    "PoolMemoryResource",
]

_Upstream = DeviceMemoryResource | mr.DeviceMemoryResource


class InvalidPoolSize(errors.InvalidArgument, RuntimeError):
    """The sizes of a pool contradict one another; RMM raises a `RuntimeError` for it."""


class PoolMemoryResource(UpstreamResourceAdaptor):
    """Keeps an upstream's memory and hands it out again, in the order of streams.

    Without an `initial_pool_size` nothing is taken before it is needed; RMM takes half of the device.

    >>> from tensormem import rmm
    >>> pool = rmm.mr.PoolMemoryResource(rmm.mr.SystemMemoryResource(), "1MiB", "8MiB")
    >>> pool.pool_size()
    1048576
    """

    resource: mr.PoolMemoryResource

    def __init__(
        self,
        upstream_mr: _Upstream,
        initial_pool_size: int | str | None = None,
        maximum_pool_size: int | str | None = None,
    ) -> None:
        initial = None if initial_pool_size is None else parse_bytes(initial_pool_size)
        maximum = None if maximum_pool_size is None else parse_bytes(maximum_pool_size)
        if maximum is not None and (initial or 0) > maximum:
            raise InvalidPoolSize(f"Initial pool size exceeds the maximum pool size: {initial} > {maximum} bytes")
        super().__init__(upstream_mr, mr.PoolMemoryResource(resource_of(upstream_mr), initial, maximum))

    def pool_size(self) -> int:
        """How many bytes the pool has from its upstream now."""
        return self.resource.pool_size


class ArenaMemoryResource(UpstreamResourceAdaptor):
    """Arenas for threads and streams, so that they rarely meet.

    `arena_size` is the size of the arenas together; `dump_log_on_failure` is taken and not needed: every shortage
    carries a report of the pool.

    >>> from tensormem import rmm
    >>> arena = rmm.mr.ArenaMemoryResource(rmm.mr.SystemMemoryResource(), "1MiB")
    >>> arena.deallocate(arena.allocate(1024), 1024)
    """

    def __init__(
        self, upstream_mr: _Upstream, arena_size: int | str | None = None, dump_log_on_failure: bool = False
    ) -> None:
        size = None if arena_size is None else parse_bytes(arena_size)
        super().__init__(upstream_mr, mr.ArenaMemoryResource(resource_of(upstream_mr), size))


class FixedSizeMemoryResource(UpstreamResourceAdaptor):
    """Blocks of one size; larger requests are refused.

    >>> from tensormem import rmm
    >>> fixed = rmm.mr.FixedSizeMemoryResource(rmm.mr.SystemMemoryResource(), block_size=4096, blocks_to_preallocate=4)
    >>> fixed.deallocate(fixed.allocate(1024), 1024)
    """

    def __init__(self, upstream_mr: _Upstream, block_size: int = 1 << 20, blocks_to_preallocate: int = 128) -> None:
        super().__init__(
            upstream_mr, mr.FixedSizeMemoryResource(resource_of(upstream_mr), block_size, blocks_to_preallocate)
        )


class BinningMemoryResource(UpstreamResourceAdaptor):
    """A bin for each size up to the largest, and the upstream beyond.

    >>> from tensormem import rmm
    >>> binning = rmm.mr.BinningMemoryResource(rmm.mr.SystemMemoryResource(), 10, 12)
    >>> binning.deallocate(binning.allocate(1024), 1024)
    """

    resource: mr.BinningMemoryResource

    def __init__(self, upstream_mr: _Upstream, min_size_exponent: int = -1, max_size_exponent: int = -1) -> None:
        upstream = resource_of(upstream_mr)
        given = -1 not in (min_size_exponent, max_size_exponent)
        exponents = (min_size_exponent, max_size_exponent) if given else (None, None)
        super().__init__(upstream_mr, mr.BinningMemoryResource(upstream, *exponents))
        self._bins: dict[int, mr.DeviceMemoryResource | None] = dict.fromkeys(self.resource.bin_sizes)
        self._bin_mrs: list[DeviceMemoryResource] = []

    def add_bin(self, allocation_size: int, bin_resource: _Upstream | None = None) -> None:
        """Serve blocks up to `allocation_size`, and above the next smaller bin, from a resource of their own.

        A bin of that size is replaced, as long as no block is out.
        """
        given = None if bin_resource is None else wrapped(bin_resource)
        resource = None if given is None else given.resource
        if allocation_size in self._bins and resource is not None:
            self._replace(allocation_size, resource)
        elif allocation_size not in self._bins:
            self.resource.add_bin(allocation_size, resource)
        self._bins[allocation_size] = resource
        if given is not None:
            self._bin_mrs.append(given)

    def _replace(self, allocation_size: int, resource: mr.DeviceMemoryResource) -> None:
        if self.resource.bytes_outstanding:
            raise errors.InvalidArgument(f"blocks are out: the bin of {allocation_size} bytes cannot be replaced now")
        made = mr.BinningMemoryResource(self.upstream_mr.resource)
        for size, each in {**self._bins, allocation_size: resource}.items():
            made.add_bin(size, each)
        self.resource = made

    @property
    def bin_mrs(self) -> list[DeviceMemoryResource]:
        """The resources that were given to `add_bin`."""
        return self._bin_mrs
