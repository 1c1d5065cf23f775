"""Owns: tensors over the addresses of a block cache, and its slot numbers as tensors; installed into the caches.

Must not know: which blocks there are; the cache says so when one is touched.
"""

from __future__ import annotations

from array import array
from math import prod
from operator import index
from typing import SupportsIndex

from tensormem import errors
from tensormem._core import BlockCache, CacheRange, Tensor, tensor_over
from tensormem.dtypes import dtype as find_dtype
from tensormem.tensor.making import from_buffer
from tensormem.tensor.places import describe_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tensormem.drivers.where import WhereLike

__all__ = ["slots_on", "tensor_over_cache"]

Shape = SupportsIndex | tuple[SupportsIndex, ...] | list[SupportsIndex]


def tensor_over_cache(cache: BlockCache, whole: CacheRange, dtype: object, shape: Shape, plane: int) -> Tensor:
    """A tensor of `(cache.slot_count, *shape)` over one plane. `whole` keeps the cache; it is released on failure."""
    try:
        element = find_dtype(dtype)
        lengths = tuple(map(index, shape)) if isinstance(shape, tuple | list) else (index(shape),)
        nbytes = prod(lengths) * element.bits * element.lanes // 8
        if nbytes == 0 or nbytes > cache.block_size or min(lengths, default=1) < 1 or element.bits * element.lanes % 8:
            raise errors.InvalidArgument(
                f"{element} of shape {lengths} has {nbytes:,} bytes, and a block of this cache {cache.block_size:,}"
            )
        strides = [prod(lengths[place + 1 :]) * element.bits * element.lanes // 8 for place in range(len(lengths))]
        return tensor_over(
            cache.base_address + plane * cache.plane_stride,
            element,
            (cache.slot_count, *lengths),
            (cache.block_stride, *strides),
            owner=whole,
            readonly=False,
            **describe_place(cache.where),
        )
    except BaseException:
        whole.release()
        raise


def slots_on(slots: array[int] | memoryview, device: WhereLike) -> Tensor:
    """The slot numbers as a tensor on a device, by one copy."""
    with from_buffer(slots) as held:
        moved = held.to(device, copy=True)
        moved.wait()
    return moved
