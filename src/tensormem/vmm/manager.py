"""Owns: the virtual memory manager of a driver found by name.

Must not know: how the calls work; they are native.
"""

from __future__ import annotations

from tensormem import _core
from tensormem.drivers import COMPUTING, resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex

    from tensormem.drivers import Where
    from tensormem.drivers.where import WhereLike

__all__ = ["VirtualMemoryManager", "find_mapped"]


class VirtualMemoryManager(_core.VirtualMemoryManager):
    """Addresses, pages, and the mappings between them, on one device: "main", "gpu:0", "cuda:0", `tm.gpu(1)`, a driver.

    Addresses are reserved without memory and pages made without addresses; a page may stand behind several addresses.
    Every call either does all that it says or raises and changes nothing. Leaving the `with` block takes everything
    down.

    >>> import ctypes
    >>> import tensormem as tm
    >>> with tm.VirtualMemoryManager() as vmm:
    ...     va = vmm.reserve("128GiB")
    ...     pages = vmm.alloc_physical("2MiB")
    ...     first = vmm.map(va, pages, 0, access="read_write")
    ...     again = vmm.map(va, pages, "64GiB", access="read")
    ...     ctypes.memmove(first.address, b"hello", 5) == first.address
    ...     ctypes.string_at(again.address, 5)
    True
    b'hello'
    """

    def __init__(self, driver: WhereLike = "host", device: WhereLike | SupportsIndex | None = None) -> None:
        super().__init__(find_mapped(driver).driver, device)


def find_mapped(said: WhereLike) -> Where:
    """Where virtual memory is meant to be: on the host, or on a GPU."""
    return resolve(said, COMPUTING, "virtual memory is mapped")
