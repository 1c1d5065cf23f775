"""Owns: the buffer protocol of tensors, and buffers of other objects that a tensor is made over."""
cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_F_CONTIGUOUS,
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_FULL,
    PyBUF_FULL_RO,
    PyBUF_ND,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint64_t

from tensormem._core.native_tensor cimport is_row_major


cdef int check_buffer(Tensor tensor, int flags, bint readonly) except -1:
    if tensor.element.format is None:
        raise BufferError(f"the buffer protocol has no word for {tensor.element.dtype}; view it as whole numbers, or "
                          "hand it over by DLPack")
    if flags & PyBUF_WRITABLE and readonly:
        raise BufferError("this tensor is read-only")
    return _check_order(tensor, is_row_major(tensor.rank, tensor.dims, tensor.steps()), flags)


cdef bint fill_buffer(Tensor tensor, object holder, Py_buffer* buffer, int flags, uint64_t first,
                      bint readonly) noexcept:
    cdef int32_t i
    cdef Py_ssize_t item = <Py_ssize_t>tensor.element.width.bytes()
    cdef Py_ssize_t* sizes = <Py_ssize_t*>PyMem_Malloc((2 * tensor.rank + 1) * sizeof(Py_ssize_t))
    if sizes is NULL:
        return False
    for i in range(tensor.rank):
        sizes[i] = tensor.dims[i]
        sizes[tensor.rank + i] = tensor.dims[tensor.rank + i] * item
    buffer.buf = <void*>first if first else <void*>sizes
    buffer.obj = holder
    buffer.len = <Py_ssize_t>tensor.nbytes_()
    buffer.itemsize = item
    buffer.readonly = readonly
    buffer.ndim = tensor.rank
    buffer.format = <char*>tensor.element.format if flags & PyBUF_FORMAT else NULL
    buffer.shape = sizes if flags & PyBUF_ND else NULL
    buffer.strides = sizes + tensor.rank if (flags & PyBUF_STRIDES) == PyBUF_STRIDES else NULL
    buffer.suboffsets = NULL
    buffer.internal = <void*>sizes
    return True


cdef void free_buffer(Py_buffer* buffer) noexcept:
    PyMem_Free(buffer.internal)
    buffer.internal = NULL


cdef int _check_order(Tensor tensor, bint dense, int flags) except -1:
    cdef int64_t expected = 1
    cdef bint columns = True
    cdef int32_t i
    for i in range(tensor.rank):
        if tensor.dims[i] != 1 and tensor.steps()[i] != expected:
            columns = False
        expected *= tensor.dims[i]
    if tensor.count() == 0:
        columns = True
    cdef bint strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES
    if (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS and not dense:
        raise BufferError("the elements are not row-major without gaps")
    if (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS and not columns:
        raise BufferError("the elements are not column-major without gaps")
    if (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS and not (dense or columns):
        raise BufferError("the elements have gaps")
    if not strided and not dense:
        raise BufferError("whoever asks takes no strides, and the elements are not row-major without gaps")
    return 0


@cython.final
cdef class BufferOwner:
    """Holds a buffer of another object, and lets it go at its end."""

    cdef Py_buffer view
    cdef bint held

    def __init__(self):
        raise TypeError("made by from_buffer")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


def take_buffer(source):
    """(owner, address, nbytes, readonly, format, itemsize, shape, byte strides) of an object with the buffer protocol."""
    cdef BufferOwner owner = BufferOwner.__new__(BufferOwner)
    cdef Py_buffer* view = &owner.view
    cdef Py_ssize_t i
    try:
        PyObject_GetBuffer(source, view, PyBUF_FULL)
    except (BufferError, ValueError):
        PyObject_GetBuffer(source, view, PyBUF_FULL_RO)
    owner.held = True
    if view.suboffsets is not NULL:
        for i in range(view.ndim):
            if view.suboffsets[i] >= 0:
                raise BufferError("a buffer of pointers to pointers cannot be one tensor")
    shape = tuple([view.shape[i] for i in range(view.ndim)])
    steps = tuple([view.strides[i] for i in range(view.ndim)])
    text = "B" if view.format is NULL else (<bytes>view.format).decode()
    return owner, <uint64_t>view.buf, view.len, bool(view.readonly), text, view.itemsize, shape, steps
