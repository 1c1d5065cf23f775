"""Owns: what other processes do with memory they are given. Here, because a spawned process imports it by name."""

import ctypes
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from typing import Any

from tensormem.vmm import PhysicalAllocation

TIME_LIMIT = 100.0


def bytes_of(physical: PhysicalAllocation, nbytes: int, put: bytes = b"") -> bytes:
    """Reads the beginning of the memory, and then writes there."""
    vmm = physical.manager
    with vmm.reserve(physical.size) as va:
        vmm.map(va, physical, access="read_write")
        found = ctypes.string_at(va.base, nbytes)
        ctypes.memmove(va.base, put, len(put))
    return found


def first_bytes(physical: PhysicalAllocation) -> bytes:
    return bytes_of(physical, 5)


def answer(physical: PhysicalAllocation, connection: Connection) -> None:
    """Tells what it read in memory it was started with, and answers there."""
    connection.send(bytes_of(physical, 5, put=b"child"))


def echo(queue: "SimpleQueue[PhysicalAllocation]", back: Connection) -> None:
    """The same with memory from a queue, which it sends back."""
    arrived = queue.get()
    back.send(bytes_of(arrived, 5, put=b"queue"))
    back.send(arrived)
    assert received(back) == "got it"


def received(connection: Connection) -> Any:
    """The next message. A neighbour that died is told at once, one that hangs in the end."""
    if not connection.poll(TIME_LIMIT):
        raise TimeoutError("the neighbour does not answer")
    return connection.recv()
