"""Owns: the contents of suspended memory, kept in main memory or in a file without a name, or nowhere.

Must not know: which pool they come from.
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
from tensormem._core import Driver
from tensormem.streams import Stream

__all__ = ["Spilled"]

_Place = tuple[int, int]  # address, size


class Spilled:
    """Copies of some places of a pool, in the order of addresses, one behind the other.

    >>> from tensormem.pools.spilled import Spilled
    >>> Spilled([], "drop").nbytes
    0
    """

    def __init__(self, places: Sequence[_Place], contents: str) -> None:
        self._places = sorted(places)
        self._starts = list(itertools.accumulate((size for _, size in self._places), initial=0))
        self._kept = _room(self.nbytes, contents)

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
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _address(kept: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(kept))  # the export ends here, so that `close` can


def _room(nbytes: int, contents: str) -> mmap.mmap | None:
    if contents not in ("main", "file", "drop") and not Path(contents).is_dir():
        raise errors.InvalidArgument(f"contents go to 'main', a 'file', a folder, or 'drop'; not {contents!r}")
    if contents == "drop" or not nbytes:
        return None
    try:
        if contents == "main":
            return mmap.mmap(-1, nbytes)
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
