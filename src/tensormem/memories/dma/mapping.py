"""Owns: the addresses of a DMA-BUF in this process: one mapping to read and write, one to read only, each made once.

Must not know: who accesses them and when.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading

from tensormem.memories.dma import ioctls

__all__ = ["Mapping"]


class Mapping:
    """The first `nbytes` of a descriptor's memory at addresses that stay until `unmap`.

    >>> import os
    >>> memory = os.memfd_create("example")
    >>> os.truncate(memory, mmap.PAGESIZE)
    >>> mapping = Mapping(memory, mmap.PAGESIZE)
    >>> mapping.address(writable=False) != mapping.address(writable=True)
    True
    >>> mapping.address(writable=True) == mapping.address(writable=True)
    True
    >>> mapping.unmap()
    >>> os.close(memory)
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        self._fd, self._nbytes = fd, nbytes
        self._addresses: dict[bool, int] = {}
        self._lock = threading.Lock()

    def address(self, *, writable: bool) -> int:
        """Where the memory is; mapped the first time it is asked for."""
        with self._lock:
            if writable not in self._addresses:
                self._addresses[writable] = self._map(mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
            return self._addresses[writable]

    def unmap(self) -> None:
        """Give the addresses back. Nobody may use them any more."""
        with self._lock:
            while self._addresses:
                _, address = self._addresses.popitem()
                _libc().munmap(ctypes.c_void_p(address), ctypes.c_size_t(self._nbytes))

    def _map(self, protection: int) -> int:
        call = _libc().mmap
        call.restype = ctypes.c_void_p
        numbers = (ctypes.c_int(protection), ctypes.c_int(mmap.MAP_SHARED), ctypes.c_int(self._fd), ctypes.c_long(0))
        address = call(None, ctypes.c_size_t(self._nbytes), *numbers)
        if address is None or address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise ioctls.failure(OSError(code, os.strerror(code)), f"mmap of {self._nbytes} bytes")
        return int(address)


def _libc() -> ctypes.CDLL:
    # Not Python's mmap: that would hold a descriptor of its own, and would not give the address of a read-only one.
    return ctypes.CDLL(None, use_errno=True)
