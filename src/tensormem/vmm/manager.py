"""Owns: the virtual memory manager of a driver found by name.

Must not know: how the calls work; they are native.
"""

from tensormem import _core, drivers, errors
from tensormem._core import Driver

__all__ = ["VirtualMemoryManager", "find_driver"]

_HOSTS = ("host", "cpu")
_GPUS = ("cuda", "rocm", "hip")


class VirtualMemoryManager(_core.VirtualMemoryManager):
    """Addresses, pages, and the mappings between them, on one device: "host", "cuda:0", "rocm:0".

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

    def __init__(self, driver: str | Driver = "host", device: int | None = None) -> None:
        found, ordinal = (driver, driver.device) if isinstance(driver, Driver) else find_driver(driver)
        super().__init__(found, ordinal if device is None else device)


def find_driver(text: str) -> tuple[Driver, int]:
    """The driver and the ordinal behind "host", "cuda:0" or "rocm:1"."""
    name, _, ordinal = str(text).partition(":")
    if name not in (*_HOSTS, *_GPUS) or not (ordinal or "0").isdecimal():
        raise errors.DriverUnavailable(str(text), "virtual memory is managed on host, cuda:0 or rocm:0")
    number = int(ordinal or 0)
    return (drivers.host() if name in _HOSTS else drivers.get(f"{name}:{number}")), number
