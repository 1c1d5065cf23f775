# Owns: the C shape of the leaves over kinds of memory, for the other modules of this package.
from tensormem._core.resource cimport DeviceBlock, DeviceMemoryResource


cdef class KindMemoryResource(DeviceMemoryResource):
    cdef readonly str kind


# Raises: a stack handed out a block without asking the maker, so the block is a part of something larger.
cdef int refuse_part(DeviceMemoryResource mr, DeviceBlock block) except -1
