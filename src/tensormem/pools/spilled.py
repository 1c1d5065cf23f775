"""Owns: the contents of suspended memory, kept in main memory or in a file without a name, or nowhere.

Must not know: which pool they come from.
"""

import ctypes
import itertools
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tensormem import errors
from tensormem._core import Driver

__all__ = ["Spilled"]

_Place = tuple[int, int, int]  # id, address, size


class Spilled:
    """Copies of some places of a pool, one behind the other.

    >>> from tensormem.pools.spilled import Spilled
    >>> Spilled([], "drop").nbytes
    0
    """

    def __init__(self, places: Sequence[_Place], contents: str) -> None:
        self.ids = [number for number, _, _ in places]
        self.nbytes = sum(size for _, _, size in places)
        self._sizes = {number: size for number, _, size in places}
        self._kept = None if contents == "drop" or not self.nbytes else _room(self.nbytes, contents)

    def copy_out(self, driver: Driver, places: Sequence[_Place]) -> None:
        """Take the bytes of the places; each has as many as it had."""
        self._copy(driver, places, out=True)

    def copy_in(self, driver: Driver, places: Sequence[_Place]) -> None:
        """Put the bytes back; what was dropped comes back as whatever the pages hold."""
        self._copy(driver, places, out=False)

    def _copy(self, driver: Driver, places: Sequence[_Place], *, out: bool) -> None:
        if self._kept is None:
            return
        view = (ctypes.c_char * self.nbytes).from_buffer(self._kept)
        here = ctypes.addressof(view)
        sizes = [self._sizes[number] for number in self.ids]
        starts = dict(zip(self.ids, itertools.accumulate([0, *sizes[:-1]]), strict=True))
        for number, address, size in places:
            kept = here + starts[number]
            driver.copy(*((kept, address) if out else (address, kept)), size)

    def close(self) -> None:
        """Give the room back."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _room(nbytes: int, contents: str) -> mmap.mmap:
    if contents == "main":
        return mmap.mmap(-1, nbytes)
    folder = None if contents == "file" else contents
    if folder is not None and not Path(folder).is_dir():
        raise errors.InvalidArgument(f"contents go to 'main', a 'file', a folder, or 'drop'; not {contents!r}")
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, nbytes)  # room on the disk is found missing now, not while copying
        return mmap.mmap(file.fileno(), nbytes)
