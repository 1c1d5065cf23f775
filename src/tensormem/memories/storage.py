"""Owns: the name of `Storage`, and what it asks of the owner of its memory.

The code is in the compiled core. Must not know: which kinds of memory there are.
"""

from typing import Protocol, runtime_checkable

from tensormem._core import Storage

__all__ = ["Storage", "StorageOwner"]


@runtime_checkable
class StorageOwner(Protocol):
    """What may keep the memory of a storage: any object, and if it has `release()`, that is called exactly once.

    >>> class Owner:
    ...     def release(self) -> None:
    ...         print("given back")
    >>> import tensormem as tm
    >>> memory = bytearray(16)
    >>> isinstance(Owner(), StorageOwner)
    True
    """

    def release(self) -> None:
        """Give the memory back."""
        ...
