"""Owns: how physical memory travels to another process: through `multiprocessing`, and over a Unix socket.

A descriptor goes, never a name, so nothing is left behind when either side dies. Whoever receives one checks what it
is: a memory file that cannot shrink under us, of the size that was said. Must not know: addresses.
"""

import os
import socket
import struct
from collections.abc import Callable
from multiprocessing import context, util
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Protocol

from tensormem import errors
from tensormem._core import PhysicalAllocation
from tensormem.vmm.manager import VirtualMemoryManager

__all__ = ["receive_physical", "send_physical"]

_HEADER = struct.Struct("<8sQ")
_MAGIC = b"tmphys01"


class _Detachable(Protocol):
    def detach(self) -> int: ...


_arrivals: dict[str, VirtualMemoryManager] = {}


def _manager_of(where: str) -> VirtualMemoryManager:
    """The manager that owns what arrives through `multiprocessing`, where nobody can name one."""
    manager = _arrivals.get(where)
    if manager is None or manager.closed:
        manager = _arrivals[where] = VirtualMemoryManager(where)
    return manager


def _rebuild(descriptor: _Detachable, where: str, size: int) -> PhysicalAllocation:
    fd = descriptor.detach()
    try:
        return _manager_of(where).import_handle(fd, size)
    finally:
        os.close(fd)


def _reduce(physical: PhysicalAllocation) -> tuple[Callable[..., PhysicalAllocation], tuple[object, str, int]]:
    fd = physical.manager.export_handle(physical)
    child = context.get_spawning_popen()
    if child is not None:
        # The descriptor is inherited when the child starts, which is later: it is the child's record that closes it.
        util.Finalize(child, os.close, (fd,), exitpriority=0)
        return _rebuild, (DupFd(fd), physical.manager.where, physical.size)
    try:
        return _rebuild, (DupFd(fd), physical.manager.where, physical.size)
    finally:
        os.close(fd)


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
        message = _HEADER.pack(_MAGIC, physical.size)
        if socket.send_fds(connection, [message], [fd]) != len(message):
            raise errors.InvalidArgument("the socket took only a part of the message")
    finally:
        os.close(fd)


def receive_physical(connection: socket.socket, manager: VirtualMemoryManager) -> PhysicalAllocation:
    """Receive the memory that `send_physical` sent, checked: anything else is refused and closed."""
    message, descriptors, flags, _ = socket.recv_fds(connection, _HEADER.size, 4, socket.MSG_CMSG_CLOEXEC)
    try:
        if not message and not descriptors:
            raise EOFError("the other end closed the socket")
        if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC) or len(descriptors) != 1 or len(message) != _HEADER.size:
            raise errors.InvalidArgument("the message is not one piece of physical memory")
        magic, size = _HEADER.unpack(message)
        if magic != _MAGIC or not 0 < size < 2**63:
            raise errors.InvalidArgument("the message is not one piece of physical memory")
        return manager.import_handle(descriptors[0], size)
    finally:
        for fd in descriptors:
            os.close(fd)
