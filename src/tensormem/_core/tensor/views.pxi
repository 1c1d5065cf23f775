"""Owns: what an index of a tensor selects: whole numbers, slices, and where the first element of a view is."""
from cpython.slice cimport PySlice_AdjustIndices, PySlice_Unpack
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from tensormem._core.native_tensor cimport kMaxDims

from tensormem import errors


cdef int32_t _axis(Tensor tensor, object dim) except -1:
    cdef int64_t axis = _whole(dim, "a dimension")
    if not -tensor.rank <= axis < tensor.rank:
        raise errors.InvalidArgument(f"there is no dimension {axis}: the tensor has {tensor.rank}")
    return <int32_t>(axis + tensor.rank if axis < 0 else axis)


cdef int64_t _select(Tensor tensor, int32_t dim, object index) except? -1:
    if not PyLong_CheckExact(index) and (not hasattr(index, "__index__") or isinstance(index, bool)):
        raise TypeError(f"a tensor is indexed by whole numbers, slices, ... and None, not {type(index).__name__}")
    cdef int64_t at = _whole(index, "an index")
    if not -tensor.dims[dim] <= at < tensor.dims[dim]:
        raise IndexError(f"index {at} is out of range for dimension {dim} of length {tensor.dims[dim]}")
    return (at + tensor.dims[dim] if at < 0 else at) * tensor.steps()[dim]


cdef Tensor _first_selected(Tensor tensor, int64_t elements):
    cdef int32_t rank = tensor.rank - 1
    cdef Tensor result = tensor.view(_moved(tensor, elements, NULL, 0), rank)
    memcpy(result.dims, tensor.dims + 1, rank * sizeof(int64_t))
    memcpy(result.dims + rank, tensor.steps() + 1, rank * sizeof(int64_t))
    return result


cdef int64_t _cut(Tensor tensor, int32_t dim, slice part, int64_t* length, int64_t* step) except? -1:
    cdef Py_ssize_t start, stop, stride
    PySlice_Unpack(part, &start, &stop, &stride)
    length[0] = PySlice_AdjustIndices(tensor.dims[dim], &start, &stop, stride)
    if length[0] == 0:
        step[0] = tensor.steps()[dim]
        return 0
    # One element alone has no next one, and the product may not fit.
    step[0] = stride * tensor.steps()[dim] if length[0] > 1 else 1
    return start * tensor.steps()[dim]


cdef int _check_room(int32_t made) except -1:
    if made >= kMaxDims:
        raise errors.InvalidArgument(f"a tensor has at most {kMaxDims} dimensions")
    return 0


cdef uint64_t _moved(Tensor tensor, int64_t elements, const int64_t* lengths, int32_t rank) except? 0:
    if elements == 0:
        if tensor.element.width.packed and not _keeps_all(tensor, lengths, rank):
            raise errors.NotSupported("views of elements that share bytes; only reshape has one")
        return tensor.first
    if tensor.element.width.packed:
        raise errors.NotSupported("views of elements that share bytes; only reshape has one")
    return tensor.first + <uint64_t>(elements * <int64_t>tensor.element.width.bytes())


cdef bint _keeps_all(Tensor tensor, const int64_t* lengths, int32_t rank):
    cdef uint64_t total = 1
    cdef int32_t i
    if lengths is NULL:
        return False
    for i in range(rank):
        total *= <uint64_t>lengths[i]
    return total == tensor.count()
