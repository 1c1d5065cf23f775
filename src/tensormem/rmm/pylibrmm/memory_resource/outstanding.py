"""Owns: the blocks that were handed out as plain addresses, which is how RMM hands out memory.

A block stays here, and so alive, until its address is deallocated, whatever becomes of the resource's Python object.
Must not know: what the memory is used for.
"""

from tensormem import errors
from tensormem.mr import DeviceBlock, DeviceMemoryResource

__all__ = ["keep", "take"]

# By the resource, which its block keeps alive, and the address: one address may be out at several layers of a stack.
_blocks: dict[tuple[int, int], DeviceBlock] = {}


def keep(resource: DeviceMemoryResource, block: DeviceBlock) -> int:
    """Keep a block that `resource` made; gives its address."""
    _blocks[id(resource), block.ptr] = block
    return block.ptr


def take(resource: DeviceMemoryResource, ptr: int, nbytes: int) -> DeviceBlock:
    """The block at an address, which is kept no longer; refused if there is none of that size."""
    block = _blocks.get((id(resource), ptr))
    if block is None or block.mr is not resource:
        raise errors.ForeignBlock(0, ptr, what=f"{resource!r} has no allocation there: it was freed, or never made")
    if block.nbytes != nbytes:
        raise errors.InvalidSize(nbytes, what=f"the allocation at {ptr:#x} has {block.nbytes} bytes")
    if _blocks.pop((id(resource), ptr), None) is None:
        raise errors.ForeignBlock(0, ptr, what="another thread has just freed it")
    return block
