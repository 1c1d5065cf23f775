"""Owns: the makers of tensors: in memory of a resource, and over memory that somebody else owns."""
cimport cython
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from tensormem._core.base cimport Driver, address_of
from tensormem._core.failures cimport check
from tensormem._core.native cimport AllocRequest, MemorySpace
from tensormem._core.native_tensor cimport Code, Reach, is_row_major, measure_layout, row_major_strides
from tensormem._core.resource cimport DeviceBlock, DeviceMemoryResource

from tensormem import errors


cdef object _mem = None  # what `TensorMemory` calls memory of a resource


def empty(shape, dtype="float32", *, space=None, memory=None, mr=None, stream=None, alignment=None, tag=None, use=None):
    """A tensor whose values are whatever was in the memory.

    In `space` (main memory unless told), or in the memory of `mr`, or of the kind `memory`; see `tensormem.memories`.
    With none of them, the current resource of main memory serves (`tm.use_resource`).

    >>> import tensormem as tm
    >>> tm.empty((2, 3), "int32").nbytes
    24
    """
    return _make(shape, dtype, space, memory, mr, stream, alignment, tag, use, False)


def zeros(shape, dtype="float32", *, space=None, memory=None, mr=None, stream=None, alignment=None, tag=None, use=None):
    """A tensor of zeros, made as `empty` makes one. Fresh pages of main memory are zero and are not touched.

    >>> import tensormem as tm
    >>> tm.zeros((2, 2), "int8").tolist()
    [[0, 0], [0, 0]]
    """
    cdef Tensor made = _make(shape, dtype, space, memory, mr, stream, alignment, tag, use, True)
    cdef Storage storage = made.storage
    cdef DeviceBlock block = storage.block
    if storage.capacity == 0 or (block is not None and block.raw.zeroed):
        return made
    if stream is None and storage.host and storage.accesses is None:
        _clear(storage.address, storage.capacity)
    else:
        _above.fill(made, 0, stream)
    return made


def full(shape, value, dtype="float32", *, space=None, memory=None, mr=None, stream=None, alignment=None, tag=None,
         use=None):
    """A tensor of which every element is `value`, made as `empty` makes one.

    >>> import tensormem as tm
    >>> tm.full(3, 1.5).tolist()
    [1.5, 1.5, 1.5]
    """
    cdef Tensor made = _make(shape, dtype, space, memory, mr, stream, alignment, tag, use, False)
    _above.fill(made, value, stream)
    return made


cdef void _clear(uint64_t address, uint64_t nbytes) noexcept:
    # Nobody else has the memory yet. Below some size, letting go of the GIL costs more.
    if nbytes <= 16384:
        memset(<void*>address, 0, nbytes)
    else:
        with nogil:
            memset(<void*>address, 0, nbytes)


cdef Tensor _make(object shape, object dtype, object space, object memory, object mr, object stream, object alignment,
                  object tag, object use, bint zeroed):
    cdef int64_t[64] lengths
    cdef Reach reach
    cdef ElementType element = element_of(dtype) if type(dtype) is not int else _refuse_lengths(shape, dtype)
    cdef int32_t rank = parse_shape(shape, lengths)
    cdef Storage storage
    cdef Tensor made
    check(measure_layout(rank, lengths, NULL, element.width, Code.invalid_size, &reach))
    if space is None and memory is None and use is None and reach.above != 0:
        storage = _from_resource(_current_resource() if mr is None else mr, reach.above, stream, alignment, tag,
                                 zeroed)
    else:
        storage = _above.allocate(reach.above, space, memory, mr, stream, alignment, tag, use)
    made = new_tensor(storage, element, storage.address, rank, storage._readonly)
    memcpy(made.dims, lengths, rank * sizeof(int64_t))
    row_major_strides(rank, lengths, made.dims + rank)
    return made


cdef ElementType _refuse_lengths(object shape, object second):
    raise errors.InvalidDType(
        second, what=f"a shape is one argument, and the element type is the next: ({shape!r:.40}, {second!r}) in brackets")


cdef Tensor new_like(Tensor tensor, DeviceMemoryResource mr):
    cdef Storage storage = _from_resource(mr, tensor.nbytes_(), None, None, None, False)
    cdef Tensor made
    made = new_tensor(storage, tensor.element, storage.address, tensor.rank, False)
    memcpy(made.dims, tensor.dims, tensor.rank * sizeof(int64_t))
    row_major_strides(tensor.rank, tensor.dims, made.dims + tensor.rank)
    return made


cdef DeviceMemoryResource _current_resource():
    cdef PyObject* local = NULL
    PyContextVar_Get(_in_use, NULL, &local)
    if local is not NULL:
        mine = <object>local
        Py_DECREF(mine)
        if mine is not None:
            found = (<dict>mine).get(_HOST_PLACE)
            if found is not None:
                return <DeviceMemoryResource>found
    found = _resources.get(_HOST_PLACE)
    if found is None:
        found = _above.current_resource()
    return <DeviceMemoryResource>found


def storage_from(mr, nbytes, stream=None, alignment=None, tag=None):
    """A storage of kind `mem`: `nbytes` from the resource `mr`, which says in which space they are."""
    return _from_resource(mr, nbytes, stream, alignment, tag, False)


cdef Storage _from_resource(object resource, uint64_t nbytes, object stream, object alignment, object tag,
                            bint zeroed):
    if not isinstance(resource, DeviceMemoryResource):
        raise errors.InvalidArgument(f"memory comes from a resource, not {type(resource).__name__}")
    cdef DeviceMemoryResource mr = resource
    cdef AllocRequest request
    cdef DeviceBlock block
    mr._request(&request, 1, stream, alignment, tag)
    request.nbytes = nbytes
    request.zeroed = zeroed
    block = mr.take(request)
    if mr._space is None:
        _learn_place(mr)
    cdef const MemorySpace* where = &mr.native.space()
    cdef Storage made = new_storage(block.raw.address, nbytes, block, mr._space, _mem, mr.driver, mr._device_type,
                                    mr._device_id, where.host_reaches, False)
    made.untouchable = where.nobody_reaches()
    return made


cdef int _learn_place(DeviceMemoryResource mr) except -1:
    # Where a resource's memory is never changes: whoever comes first writes what everybody else would write.
    global _mem
    if _above is None:  # storages are asked for by somebody who has no tensors yet
        import tensormem.tensor
    space, memory, (device_type, device_id) = _above.place_of(mr)
    with cython.critical_section(mr):
        _mem = memory
        mr._device_type, mr._device_id = device_type, device_id
        mr._space = space
    return 0


# ---- Over memory that somebody else owns ----

def over(address, dtype, shape, byte_strides, *, owner, space, memory, device, Driver driver, bint host, bint readonly):
    """A tensor over memory that `owner` keeps; its storage is what the elements reach, no more."""
    cdef int64_t[64] lengths
    cdef int64_t[64] steps
    cdef Reach reach
    cdef ElementType element = element_of(dtype)
    cdef int32_t i, rank = parse_shape(shape, lengths)
    cdef uint64_t first = address_of(address)
    cdef int64_t item = <int64_t>element.width.bytes()
    cdef Tensor made
    cdef const int64_t* given = NULL
    if byte_strides is not None:
        given = steps
        _parse_strides(byte_strides, rank, steps)
        for i in range(rank):
            if steps[i] % item and lengths[i] > 1:
                raise BufferError(f"a stride of {steps[i]} bytes is no whole number of elements of {item} bytes")
            steps[i] = steps[i] // item
    check(measure_layout(rank, lengths, given, element.width, Code.invalid_size, &reach))
    if given is NULL:
        row_major_strides(rank, lengths, steps)
    if reach.count and (first <= reach.below or first + reach.above < first):
        raise errors.InvalidArgument(f"{reach.below + reach.above} bytes around address {first:#x} are no memory")
    storage = Storage(first - reach.below, reach.below + reach.above, owner=owner, space=space, memory=memory,
                      device=device, driver=driver, host_accessible=host, readonly=readonly)
    made = new_tensor(storage, element, first, rank, readonly)
    memcpy(made.dims, lengths, rank * sizeof(int64_t))
    memcpy(made.dims + rank, steps, rank * sizeof(int64_t))
    return made


def reshaped(Tensor tensor not None, dtype):
    """A view of row-major bytes as one dimension of another element type of the same total size."""
    cdef ElementType element = element_of(dtype)
    cdef uint64_t nbytes = tensor.nbytes_()
    if not is_row_major(tensor.rank, tensor.dims, tensor.steps()):
        raise errors.InvalidArgument("the elements are not row-major without gaps; copy them first, with .contiguous()")
    if element.width.packed or nbytes % element.width.bytes():
        raise errors.InvalidArgument(f"{nbytes} bytes are no whole number of {element.dtype} elements")
    cdef Tensor made = new_tensor(tensor.storage, element, tensor.first, 1, tensor._readonly)
    made.dims[0] = <int64_t>(nbytes // element.width.bytes())
    made.dims[1] = 1
    return made
