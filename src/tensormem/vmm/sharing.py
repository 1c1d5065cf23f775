"""Owns: how physical memory travels to another process: through `multiprocessing`, and over a Unix socket.

A descriptor goes, never a name, so nothing is left behind when either side dies. Whoever receives one checks what it
is: a memory file that cannot shrink under us, of the size that was said. Must not know: addresses.
"""

import os
import socket
import struct
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler

from tensormem import errors
from tensormem._core import PhysicalAllocation
from tensormem.sockets.descriptors import Carried, carry, close_all, with_carried
from tensormem.sockets.packets import receive_packet, send_packet
from tensormem.vmm.manager import VirtualMemoryManager

__all__ = ["receive_physical", "send_physical"]

_HEADER = struct.Struct("<8sQ")
_MAGIC = b"tmphys01"


_arrivals: dict[str, VirtualMemoryManager] = {}


def _manager_of(where: str) -> VirtualMemoryManager:
    """The manager that owns what arrives through `multiprocessing`, where nobody can name one."""
    manager = _arrivals.get(where)
    if manager is None or manager.closed:
        manager = _arrivals[where] = VirtualMemoryManager(where)
    return manager


def _rebuild(descriptor: Carried, where: str, size: int) -> PhysicalAllocation:
    return with_carried(lambda fd: _manager_of(where).import_handle(fd, size), descriptor)


def _reduce(physical: PhysicalAllocation) -> tuple[Callable[..., PhysicalAllocation], tuple[object, str, int]]:
    (carried,) = carry(physical.manager.export_handle(physical))
    return _rebuild, (carried, physical.manager.where, physical.size)


ForkingPickler.register(PhysicalAllocation, _reduce)


def send_physical(connection: socket.socket, physical: PhysicalAllocation) -> None:
    """Send exportable memory to the process at the other end of a Unix socket.

    >>> import socket
    >>> from tensormem.vmm import VirtualMemoryManager, receive_physical, send_physical
    >>> here, there = socket.socketpair()
    >>> with here, there, VirtualMemoryManager() as vmm:
    ...     send_physical(here, vmm.alloc_physical("2MiB", exportable=True))
    ...     receive_physical(there, vmm).size
    2097152
    """
    fd = physical.manager.export_handle(physical)
    try:
        send_packet(connection, _HEADER.pack(_MAGIC, physical.size), [fd])
    except BrokenPipeError:  # the other end is gone
        raise
    except OSError as error:
        raise errors.from_system("sendmsg", error) from None
    finally:
        os.close(fd)


def receive_physical(connection: socket.socket, manager: VirtualMemoryManager) -> PhysicalAllocation:
    """Receive the memory that `send_physical` sent, checked: anything else is refused and closed."""
    try:
        message, descriptors = receive_packet(connection, _HEADER.size)
    except errors.MalformedMessage as error:
        raise errors.InvalidArgument(f"the message is not one piece of physical memory: {error.what}") from None
    except OSError as error:
        raise errors.from_system("recvmsg", error) from None
    try:
        if len(descriptors) != 1 or len(message) != _HEADER.size:
            raise errors.InvalidArgument("the message is not one piece of physical memory")
        magic, size = _HEADER.unpack(message)
        if magic != _MAGIC or not 0 < size < 2**63:
            raise errors.InvalidArgument("the message is not one piece of physical memory")
        return manager.import_handle(descriptors[0], size)
    finally:
        close_all(descriptors)
