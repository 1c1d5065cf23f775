"""Owns: `DmaBuffer`, one DMA-BUF of this process: its descriptor, its mapping, and the brackets around CPU access.

It is what a storage of kind `dma` has as its owner. Must not know: how the descriptor came about.
"""

from __future__ import annotations

import fcntl
import os

from tensormem import errors
from tensormem.construction import constructed_once
from tensormem.memories.dma import ioctls, names, sync_file
from tensormem.memories.dma.descriptor import Descriptor
from tensormem.memories.dma.mapping import Mapping
from tensormem.memories.dma.sync import Syncs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DmaBuffer"]


@constructed_once
class DmaBuffer:
    """A DMA-BUF that this process holds: the `owner` of storages of kind `dma`.

    >>> import tensormem as tm
    >>> from tensormem.memories import dma
    >>> if dma.why_not() is None:
    ...     frame = tm.zeros((4, 4), "uint8", memory="dma")
    ...     frame.storage.owner.set_name("left camera")
    ...     assert frame.storage.owner.name == "left camera"
    """

    # Of the class, for an owner that a collection has emptied already when its storage goes.
    _fd = -1
    when_released: Callable[[], None] | None = None

    def __init__(self, fd: int, *, readonly: bool = False) -> None:
        """Takes `fd` over: it is closed by `release`, or here if it cannot be used."""
        try:
            facts = Descriptor.inspect(fd)
            if not (readonly or facts.writable):
                raise errors.InvalidArgument(f"descriptor {fd} may only be read; import it with readonly=True")
            self.readonly = readonly
            self.nbytes = facts.nbytes
            self.identity: tuple[int, int] = facts.identity
            self.syncs = Syncs()
            self._mapping = Mapping(fd, facts.nbytes)
            self.address = self._mapping.address(writable=not readonly)
            self._fd = facts.fd  # last: from now on it is `release` that closes it
        except BaseException:
            os.close(fd)
            raise

    @property
    def name(self) -> str:
        """What it is called in /proc and debugfs, or ""."""
        return names.name_of(self._open())

    def set_name(self, name: str) -> None:
        """Call it something, for debugging: printable text of at most 31 bytes."""
        names.set_name(self._open(), name)

    @property
    def exporter(self) -> str:
        """Who made it, by the kernel's account: a heap, "udmabuf", a device driver."""
        return names.exporter_of(self._open())

    def begin_access(self, mode: str) -> int:
        """Start a CPU access and give the address for it: "r" on a mapping that cannot be written, "w" or "rw"."""
        fd = self._open()
        if self.readonly and mode != "r":
            raise errors.InvalidArgument(f"this DMA-BUF was imported to be read only, and cannot be mapped {mode!r}")
        address = self._mapping.address(writable=mode != "r")  # first: nothing after the start may fail
        self.syncs.start(fd, mode)
        return address

    def end_access(self, mode: str) -> None:
        """End an access that `begin_access` started; `release` has ended it already if that came first."""
        if self._fd >= 0:
            self.syncs.end(self._fd, mode)

    def export_fd(self, *, trust: bool = False) -> int:
        """A new descriptor of the same buffer, which the caller closes. Nobody can shrink it: trust changes nothing."""
        try:
            return fcntl.fcntl(self._open(), fcntl.F_DUPFD_CLOEXEC, 0)
        except OSError as refused:
            raise ioctls.failure(refused, "dup of a DMA-BUF") from None

    def export_sync_file(self, mode: str = "rw") -> int:
        """A new sync file of what an access of `mode` has to wait for; the caller closes it."""
        return sync_file.export_sync_file(self._open(), mode)

    def import_sync_file(self, fd: int, mode: str = "rw") -> None:
        """Let later users of the buffer wait for this sync file, as for an access of `mode`."""
        sync_file.import_sync_file(self._open(), fd, mode)

    def release(self) -> None:
        """End what is still accessed, unmap and close. Doing it twice is doing it once."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            self.syncs.end_all(fd)
        finally:
            self._mapping.unmap()
            if self.when_released is not None:
                self.when_released()
            os.close(fd)

    # A collection of rings of objects runs this first, and empties the object before its storage can release it.
    __del__ = release

    def __repr__(self) -> str:
        state = f"descriptor {self._fd}" if self._fd >= 0 else "given back"
        return f"<DmaBuffer of {self.nbytes} bytes, {state}>"

    def _open(self) -> int:
        if self._fd < 0:
            raise errors.UseAfterFree(self.identity[1], self.address, what="the DMA-BUF was given back")
        return self._fd
