"""Owns: kinds of tensor memory, and the storages made of them.

`TensorMemory` is the value that names a kind; each kind is one file that can make a `Storage` and say why it cannot.
Reads from low to high: kinds, storage, mem, registry. Must not know: tensors.
"""

from tensormem.memories.kinds import TensorMemory
from tensormem.memories.registry import MemoryProvider, allocate, providers, register_memory, unregister_memory
from tensormem.memories.storage import Storage, StorageOwner

__all__ = [
    "MemoryProvider",
    "Storage",
    "StorageOwner",
    "TensorMemory",
    "allocate",
    "providers",
    "register_memory",
    "unregister_memory",
]
