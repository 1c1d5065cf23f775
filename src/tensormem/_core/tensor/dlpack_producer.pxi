"""Owns: tensors as DLPack hands them out: managed structs and capsules, their flags, and their one end."""
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from tensormem._core.native_tensor cimport (
    DLTensor,
    ManagedTensor,
    ManagedTensorVersioned,
    kMajor,
    kMinor,
    kReadOnly,
    kSubbytePadded,
)

from tensormem import errors


cdef Tensor _placed(Tensor tensor, object dl_device, object copy):
    if copy is not None and type(copy) is not bool:
        raise TypeError(f"copy is True, False or None, not {type(copy).__name__}")
    if dl_device is not None:
        wanted = tuple(dl_device)
        if wanted != (tensor.storage.device_type, tensor.storage.device_id):
            return _above.to_device(tensor, wanted, copy)
    return _above.clone(tensor) if copy else tensor


cdef int _order(Tensor tensor, object stream) except -1:
    # On the CPU there are no streams to order against: what is under way is waited for.
    if tensor.storage.device_type == 1:
        if stream is not None and stream != -1:
            raise errors.StreamMisuse(0, what=f"memory of the CPU has no streams; stream must be None, not {stream!r:.40}")
        tensor.storage.settle()
        return 0
    _above.order_after(tensor, stream)
    return 0


cdef int64_t _wanted_minor(object max_version) except -2:
    # The minor version to answer with; -1 for a consumer from before version 1.
    cdef int64_t major, minor
    if max_version is None:
        return -1
    if type(max_version) is not tuple or len(<tuple>max_version) != 2:
        raise TypeError(f"max_version is a tuple of two numbers, not {max_version!r:.40}")
    major = (<tuple>max_version)[0]
    minor = (<tuple>max_version)[1]
    if major < <int64_t>kMajor:
        return -1
    return minor if major == <int64_t>kMajor and 0 <= minor < <int64_t>kMinor else <int64_t>kMinor


cdef void describe(Tensor tensor, DLTensor* described, uint64_t first) noexcept:
    described.data = <void*>first
    described.device.device_type = tensor.storage.device_type
    described.device.device_id = tensor.storage.device_id
    described.ndim = tensor.rank
    described.dtype.code = tensor.element.code
    described.dtype.bits = tensor.element.bits
    described.dtype.lanes = tensor.element.lanes
    described.shape = tensor.dims
    described.strides = tensor.dims + tensor.rank
    described.byte_offset = 0


cdef bint is_ours(ManagedTensorVersioned* managed):
    return managed.deleter is _delete_versioned


cdef bint is_ours_legacy(ManagedTensor* managed):
    return managed.deleter is _delete_legacy


cdef ManagedTensorVersioned* make_managed(Tensor tensor) except NULL:
    cdef ManagedTensorVersioned* managed
    cdef uint64_t first = tensor.lend_first()
    managed = _take_struct()
    if managed is NULL:
        tensor.storage.let_go(tensor._readonly)
        raise MemoryError
    managed.version.major = kMajor
    managed.version.minor = kMinor
    managed.manager_ctx = <void*>tensor
    managed.deleter = _delete_versioned
    managed.flags = (kReadOnly if tensor._readonly else 0) | (
        kSubbytePadded if tensor.element.width.bits % 8 and not tensor.element.width.packed else 0)
    describe(tensor, &managed.dl_tensor, first)
    Py_INCREF(tensor)
    return managed


cdef object _legacy_capsule(Tensor tensor):
    cdef ManagedTensor* managed
    if tensor._readonly:
        raise BufferError("a DLPack tensor from before version 1 cannot say that it is read-only; ask with max_version=(1, 0)")
    if tensor.element.width.bits % 8 and not tensor.element.width.packed:
        raise BufferError("a DLPack tensor from before version 1 cannot say that its elements are padded to bytes")
    cdef uint64_t first = tensor.lend_first()
    managed = <ManagedTensor*>malloc(sizeof(ManagedTensor))
    if managed is NULL:
        tensor.storage.let_go(tensor._readonly)
        raise MemoryError
    managed.manager_ctx = <void*>tensor
    managed.deleter = _delete_legacy
    describe(tensor, &managed.dl_tensor, first)
    Py_INCREF(tensor)
    try:
        return PyCapsule_New(managed, "dltensor", _drop_legacy)
    except BaseException:
        managed.deleter(managed)
        raise


cdef void _delete_versioned(ManagedTensorVersioned* managed) noexcept nogil:
    if managed is NULL:
        return
    # When Python is going away its objects go with it.
    if interpreter_is_ending():
        free(managed)
    elif PyGILState_Check():
        _finish(managed)
    else:
        with gil:
            _finish(managed)


cdef void _finish(ManagedTensorVersioned* managed) noexcept nogil:
    # With the GIL held, although the declaration cannot say so.
    _let_go(<PyObject*>managed.manager_ctx)
    _keep_struct(managed)


cdef void _delete_legacy(ManagedTensor* managed) noexcept nogil:
    if managed is NULL:
        return
    if not interpreter_is_ending():
        with gil:
            _let_go(<PyObject*>managed.manager_ctx)
    free(managed)


cdef extern from *:
    """
    // Structs that were given back, for the next ones; only touched with the GIL held.
    #ifndef Py_GIL_DISABLED
    static tensormem::dlpack::ManagedTensorVersioned* tm_kept[64];
    static int tm_kept_count = 0;
    #endif
    static inline tensormem::dlpack::ManagedTensorVersioned* tm_take_struct() {
    #ifndef Py_GIL_DISABLED
      if (tm_kept_count > 0) return tm_kept[--tm_kept_count];
    #endif
      return static_cast<tensormem::dlpack::ManagedTensorVersioned*>(
          malloc(sizeof(tensormem::dlpack::ManagedTensorVersioned)));
    }
    static inline void tm_keep_struct(tensormem::dlpack::ManagedTensorVersioned* managed) {
    #ifndef Py_GIL_DISABLED
      if (tm_kept_count < 64) {
        tm_kept[tm_kept_count++] = managed;
        return;
      }
    #endif
      free(managed);
    }
    """
    ManagedTensorVersioned* _take_struct "tm_take_struct"() nogil
    void _keep_struct "tm_keep_struct"(ManagedTensorVersioned* managed) nogil


cdef extern from "Python.h":
    int PyGILState_Check() nogil


cdef void _drop_tensor(PyObject* tensor) noexcept:
    (<Tensor>tensor).storage.let_go((<Tensor>tensor)._readonly)
    Py_DECREF(<Tensor>tensor)


# Cython would take the GIL again, which is a third of the cost of giving a tensor back.
ctypedef void (*_WithGil)(PyObject*) noexcept nogil


cdef inline void _let_go(PyObject* tensor) noexcept nogil:
    (<_WithGil>_drop_tensor)(tensor)


cdef void _drop_versioned(PyObject* capsule) noexcept:
    # Nobody took the tensor out.
    cdef ManagedTensorVersioned* managed
    if PyCapsule_IsValid(capsule, "dltensor_versioned"):
        managed = <ManagedTensorVersioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned")
        managed.deleter(managed)


cdef void _drop_legacy(PyObject* capsule) noexcept:
    cdef ManagedTensor* managed
    if PyCapsule_IsValid(capsule, "dltensor"):
        managed = <ManagedTensor*>PyCapsule_GetPointer(capsule, "dltensor")
        managed.deleter(managed)
