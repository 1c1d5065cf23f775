"""Owns: the contents of suspended memory, kept in main memory or in a file without a name, or nowhere.

Main memory for them is a block of the current resource: limits, traces and statistics see it as any other. Must not
know: which pool they come from.
"""

import bisect
import ctypes
import errno
import itertools
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tensormem import errors
from tensormem._core import DeviceBlock, Driver
from tensormem.mr import get_current_device_resource
from tensormem.streams import Stream

__all__ = ["Spilled"]

_Place = tuple[int, int]  # address, size


class Spilled:
    """Copies of some places of a pool, in the order of addresses, one behind the other.

    >>> from tensormem.pools.spilled import Spilled
    >>> Spilled([], "drop", "weights").nbytes
    0
    """

    def __init__(self, places: Sequence[_Place], contents: str, tag: str) -> None:
        self._places = sorted(places)
        self._starts = list(itertools.accumulate((size for _, size in self._places), initial=0))
        self._kept = _room(self.nbytes, contents, tag)

    @property
    def nbytes(self) -> int:
        """Of all places."""
        return self._starts[-1]

    def copy_out(self, driver: Driver) -> None:
        """Take the bytes of all places."""
        if self._kept is None:
            return
        for (address, size), start in zip(self._places, self._starts, strict=False):
            driver.copy(_address(self._kept) + start, address, size)
        Stream.default(driver).synchronize()

    def copy_in(self, driver: Driver, places: Sequence[_Place]) -> None:
        """Put the bytes back into these places, which are what is left of those taken, or parts of them.

        What was dropped comes back as whatever the pages hold.
        """
        if self._kept is None:
            return
        for address, size in places:
            at = bisect.bisect_right(self._places, address, key=lambda place: place[0]) - 1
            first, whole = self._places[at]
            driver.copy(
                address, _address(self._kept) + self._starts[at] + address - first, min(size, first + whole - address)
            )
        Stream.default(driver).synchronize()

    def close(self) -> None:
        """Give the room back."""
        kept, self._kept = self._kept, None
        if isinstance(kept, DeviceBlock):
            kept.mr.deallocate(kept)
        elif kept is not None:
            kept.close()


def _address(kept: DeviceBlock | mmap.mmap) -> int:
    if isinstance(kept, DeviceBlock):
        return int(kept)
    return ctypes.addressof(ctypes.c_char.from_buffer(kept))  # the export ends here, so that `close` can


def _room(nbytes: int, contents: str, tag: str) -> DeviceBlock | mmap.mmap | None:
    if contents not in ("main", "file", "drop") and not Path(contents).is_dir():
        raise errors.InvalidArgument(f"contents go to 'main', a 'file', a folder, or 'drop'; not {contents!r}")
    if contents == "drop" or not nbytes:
        return None
    if contents == "main":
        return _block(nbytes, tag)
    try:
        with tempfile.TemporaryFile(dir=None if contents == "file" else contents) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)  # room on the disk is found missing now, not while copying
            return mmap.mmap(file.fileno(), nbytes)
    except OSError as error:
        code = error.errno or 0
        raise errors.DriverError(
            code,
            errno.errorcode.get(code, "?"),
            os.strerror(code),
            what=f"making room for {nbytes:,} bytes of suspended contents in {contents!r}",
        ) from error


def _block(nbytes: int, tag: str) -> DeviceBlock:
    mr = get_current_device_resource()
    if not mr.is_host_accessible:
        raise errors.Untouchable("keeping suspended contents", "main")
    return mr.allocate(nbytes, tag=tag)
