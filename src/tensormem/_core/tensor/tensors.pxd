# Owns: the C shape of a tensor, for the other modules of this package.
from libc.stdint cimport int32_t, int64_t, uint64_t

from tensormem._core.construction cimport Construction
from tensormem._core.native_tensor cimport DLTensor, ManagedTensor, ManagedTensorVersioned
from tensormem._core.resource cimport DeviceMemoryResource


cdef class Tensor:
    cdef readonly Storage storage
    cdef ElementType element
    cdef uint64_t first  # the address of the first element
    cdef int32_t rank
    cdef bint _readonly
    cdef bint _address_read  # by somebody who cannot say when he is done; an access is open for him
    cdef int64_t* dims  # the shape, and behind it the strides in elements; never changed, so others may point into it
    cdef int64_t[12] _inline
    cdef Construction _construction
    cdef object __weakref__

    cdef inline int64_t* steps(self):
        return self.dims + self.rank

    cdef uint64_t count(self)
    cdef uint64_t nbytes_(self)
    cdef int check_host(self, str what) except -1
    # Asks an owner that has memory behind some addresses only; `NotMapped` where an element has none.
    cdef int check_mapped(self) except -1
    cdef uint64_t lend_first(self) except? 0
    cdef uint64_t show_first(self) except? 0
    cdef Tensor view(self, uint64_t first, int32_t rank)


# A tensor of the same shape in memory of a resource, row-major; it has at least one byte.
cdef Tensor new_like(Tensor tensor, DeviceMemoryResource mr)
# The resource that serves a space, if that is known and the tensor is not there already; else None.
cdef DeviceMemoryResource destination_of(Tensor tensor, object space)
# What copies at once where that can be done without choosing a route, and None where it cannot; and what always copies.
ctypedef Tensor (*CloneNow)(Tensor)
ctypedef Tensor (*MoveNow)(Tensor, object)
cdef void install_copies(CloneNow clone_now, MoveNow move_now, object copy_into)
# A tensor with room for a shape and strides, which the caller fills in before anybody sees it.
cdef Tensor new_tensor(Storage storage, ElementType element, uint64_t first, int32_t rank, bint readonly)
# The lengths of a shape given from outside; how many there are.
cdef int32_t parse_shape(object shape, int64_t* lengths) except -1
# A DLPack tensor that keeps ours, or NULL with an exception.
cdef ManagedTensorVersioned* make_managed(Tensor tensor) except NULL
# Whether a DLPack tensor that somebody brings is one of ours; then its `manager_ctx` is the tensor.
cdef bint is_ours(ManagedTensorVersioned* managed)
cdef bint is_ours_legacy(ManagedTensor* managed)
# Fills in a DLPack tensor that points into ours, with the first element at `first`.
cdef void describe(Tensor tensor, DLTensor* described, uint64_t first) noexcept
# Refuses what the buffer protocol asks for by `flags` if the tensor cannot be that; fills in what it can be, which fails
# only for lack of memory. The holder frees it by `free_buffer`.
cdef int check_buffer(Tensor tensor, int flags, bint readonly) except -1
cdef bint fill_buffer(Tensor tensor, object holder, Py_buffer* buffer, int flags, uint64_t first,
                      bint readonly) noexcept
cdef void free_buffer(Py_buffer* buffer) noexcept
