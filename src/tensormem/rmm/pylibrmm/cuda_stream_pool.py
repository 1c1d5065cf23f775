"""Owns: a pool of streams, each made when it is first its turn. Must not know: what runs on them."""

import itertools
import operator

from tensormem import errors
from tensormem.public_functions import explain_misspellings
from tensormem.rmm.pylibrmm.stream import CudaStreamFlags, Stream

__all__ = ["CudaStreamPool"]


class CudaStreamPool:
    """`pool_size` streams of the current device, handed out in turn or by number.

    >>> pool = CudaStreamPool(2)
    >>> pool.get_stream() == pool.get_stream(), pool.get_stream(3) == pool.get_stream(1), pool.get_pool_size()
    (False, True, 2)
    """

    def __init__(self, pool_size: int = 16, flags: CudaStreamFlags = CudaStreamFlags.SYNC_DEFAULT) -> None:
        size = operator.index(pool_size)
        if size < 1:
            raise errors.InvalidArgument(f"a pool has at least one stream, not {pool_size}")
        self._size, self._flags = size, flags
        self._streams = {0: Stream(flags=flags)}  # what is wrong with the device or the flags is said at once
        self._next = itertools.count()

    def get_stream(self, stream_id: int | None = None) -> Stream:
        """The next stream of the pool, or the one of that number; numbers past the last begin again."""
        number = next(self._next) if stream_id is None else stream_id
        if number < 0:
            raise errors.InvalidArgument(f"streams are numbered from 0, not from {number}")
        place = number % self._size
        if place not in self._streams:
            self._streams.setdefault(place, Stream(flags=self._flags))
        return Stream(self._streams[place])

    def get_pool_size(self) -> int:
        """How many streams there are."""
        return self._size


explain_misspellings(globals())
