"""Owns: the names of maps, and what memory that is reached in brackets asks of its owner (`MappedOwner`).

The code is in the compiled core. Must not know: which kinds of memory there are.
"""

from typing import Protocol, runtime_checkable

from tensormem._core import TensorMap

__all__ = ["MappedOwner", "SharedOwner", "TensorMap"]


@runtime_checkable
class MappedOwner(Protocol):
    """An owner that is told of every access of the CPU to the memory of its storage.

    Declared ones (`map`) have a pair of calls each, and several may be open at once if the owner lets them. Buffers,
    arrays and DLPack tensors that were taken without a map share one pair per mode: "rw", or "r" where the tensor is
    read-only. Both are called from any thread: a copy or fill on a stream calls them when its turn comes, on the thread
    that does the stream's work. An owner that can begin on one thread only says so by an attribute `thread_bound` that
    is true: then the begin of such a copy is called where it is queued, and its end wherever it is over.

    >>> import tensormem as tm
    >>> class Camera:
    ...     def __init__(self, memory: bytearray) -> None:
    ...         self.memory, self.address = memory, tm.wrap(memory).ptr
    ...     def begin_access(self, mode: str) -> int:
    ...         print("begin", mode)
    ...         return self.address
    ...     def end_access(self, mode: str) -> None:
    ...         print("end", mode)
    ...     def release(self) -> None:
    ...         print("release")
    >>> isinstance(Camera(bytearray(4)), MappedOwner)
    True
    >>> storage = tm.Storage(0, 4, owner=Camera(bytearray(4)), space=tm.main, memory="mem", device=(1, 0))
    >>> with storage.map("r") as frame:
    ...     print(bytes(frame))
    begin r
    b'\\x00\\x00\\x00\\x00'
    end r
    >>> storage.close()
    release
    """

    def begin_access(self, mode: str) -> int:
        """Make the bytes reachable for reading ("r"), writing ("w": what is not written stays) or both ("rw").

        Gives the address of the first one; for "r" that of a read-only mapping, where there can be one. What it raises
        reaches whoever asked, and then nothing has begun.
        """
        ...

    def end_access(self, mode: str) -> None:
        """The other half: called exactly once for each begin that succeeded, also when the code between raised."""
        ...

    def release(self) -> None:
        """Give the memory back; called exactly once, when no access is open."""
        ...


@runtime_checkable
class SharedOwner(Protocol):
    """An owner whose memory is a file that another process can be given.

    >>> import tensormem as tm
    >>> isinstance(tm.zeros(4).storage.owner, SharedOwner)
    False
    """

    @property
    def identity(self) -> tuple[int, int] | None:
        """(st_dev, st_ino) of the file, the same for every descriptor of it."""
        ...

    def export_fd(self) -> int:
        """A new descriptor of the file, which the caller closes."""
        ...
