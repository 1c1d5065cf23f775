"""Owns: kinds of tensor memory, and the storages made of them.

`TensorMemory` is the value that names a kind; each kind is one file that can make a `Storage` and say why it cannot.
Reads from low to high: kinds, maps, storage, mem, registry, availability, choice, descriptors;
processes and shm are imported when shared memory is first asked for. Must not know: tensors.
"""

from tensormem.memories.availability import Availability, is_available
from tensormem.memories.kinds import TensorMemory
from tensormem.memories.maps import MappedOwner, SharedOwner, TensorMap
from tensormem.memories.registry import MemoryProvider, allocate, providers, register_memory, unregister_memory
from tensormem.memories.storage import Storage, StorageOwner
from tensormem.public_functions import explain_misspellings

__all__ = [
    "Availability",
    "MappedOwner",
    "MemoryProvider",
    "SharedOwner",
    "Storage",
    "StorageOwner",
    "TensorMap",
    "TensorMemory",
    "allocate",
    "is_available",
    "providers",
    "register_memory",
    "unregister_memory",
]

explain_misspellings(globals())
