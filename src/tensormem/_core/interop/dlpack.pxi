"""Owns: DLPack as a consumer (`from_dlpack`), and the C exchange API that the Tensor type offers.

Every struct is checked before a byte of it is believed, and every deleter is called exactly once, on every path.
Must not know: which library produced it. What a device stands for is told by `tensormem.tensor`.
"""
cimport cython
from cpython.exc cimport PyErr_SetObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_TYPE, PyObject, PyTypeObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from tensormem._core.base cimport Driver
from tensormem._core.failures cimport check
from tensormem._core.native_tensor cimport (
    Checked,
    DLTensor,
    ExchangeApi,
    ExchangeApiHeader,
    ManagedTensor,
    ManagedTensorVersioned,
    SetError,
    check_managed,
    check_tensor,
    kMajor,
    kMinor,
    kReadOnly,
    kSubbytePadded,
    row_major_strides,
)
from tensormem._core.tensor cimport (
    ElementType,
    Storage,
    Tensor,
    describe,
    element_from_code,
    is_ours,
    is_ours_legacy,
    make_managed,
    new_storage,
    new_tensor,
)

import time

from tensormem import errors
from tensormem._core import base


cdef extern from "Python.h":
    ctypedef void (*PyCapsule_Destructor)(PyObject*) noexcept
    object PyCapsule_New(void* pointer, const char* name, PyCapsule_Destructor destructor)
    int PyCapsule_CheckExact(object capsule)
    int PyCapsule_IsValid(object capsule, const char* name)
    const char* PyCapsule_GetName(object capsule) except? NULL
    void* PyCapsule_GetPointer(object capsule, const char* name) except NULL
    int PyCapsule_SetName(object capsule, const char* name) except -1
    PyObject* _PyType_Lookup(PyTypeObject* type, object name)
    void PyType_Modified(PyTypeObject* type)
    void PyErr_Clear()


_VERSION = (kMajor, kMinor)
_EXCHANGE_NAME = "__dlpack_c_exchange_api__"
cdef object _NEGATIVE_NAME = "is_neg"
cdef enum:
    kComplex = 5
cdef object _above = None
cdef object _main = None
cdef object _mem = None
cdef Driver _host = None


def install(above, main, memory):
    """Called once by `tensormem.tensor`: what is done above, and how memory of the CPU that others made is called."""
    global _above, _main, _mem, _host
    _above, _main, _mem, _host = above, main, memory, base.host()


@cython.final
@cython.freelist(64)
cdef class ForeignTensor:
    """The owner of memory that came by DLPack: calls the producer's deleter exactly once, at its end."""

    cdef ManagedTensorVersioned* versioned
    cdef ManagedTensor* legacy

    def __init__(self):
        raise TypeError("made by from_dlpack")

    def __dealloc__(self):
        # A producer without a deleter has nothing to be told.
        if self.versioned is not NULL and self.versioned.deleter is not NULL:
            self.versioned.deleter(self.versioned)
        if self.legacy is not NULL and self.legacy.deleter is not NULL:
            self.legacy.deleter(self.legacy)


def from_dlpack(x, /, *, device=None, copy=None):
    """A tensor over the memory of `x`, anything with `__dlpack__`; without a copy unless `copy` is True.

    `device` asks for the memory to be in a space: "main", or DLPack's (device_type, device_id). What cannot be taken is
    a `BufferError`, and the producer gets its memory back at once.

    >>> import tensormem as tm
    >>> a = tm.zeros(3)
    >>> b = tm.from_dlpack(a)
    >>> b.aliases(a), b.shape
    (True, (3,))
    """
    cdef ManagedTensorVersioned* managed = NULL
    if device is None and copy is None:
        if PyCapsule_CheckExact(x):
            return _from_capsule(x)
        managed = _by_exchange(x)
        if managed is not NULL:
            return _take(managed)
        return _from_capsule(_ask(x))
    return _from_capsule(_ask_for(x, device, copy))


cdef int _refuse_lazy(object x) except -1:
    # PyTorch can leave the sign or the conjugation of values to whoever reads them, and DLPack cannot say so.
    if _PyType_Lookup(Py_TYPE(x), _NEGATIVE_NAME) is NULL:
        return 0
    if x.is_neg() or x.is_conj():
        raise BufferError("the values of this tensor are negated or conjugated only when they are read; "
                          "give it with .resolve_conj().resolve_neg()")
    return 0


cdef object _ask(object x):
    _refuse_lazy(x)
    try:
        return x.__dlpack__(max_version=_VERSION)
    except TypeError as refused:
        # From before version 1, which takes no such argument. An error of the library's own is another matter.
        if type(refused) is not TypeError:
            raise
        return _method(x)()
    except AttributeError:
        _method(x)
        raise


cdef object _ask_for(object x, object device, object copy):
    wanted = None if device is None else _above.device_numbers(device)
    if copy is not None and type(copy) is not bool:
        raise TypeError(f"copy is True, False or None, not {type(copy).__name__}")
    _refuse_lazy(x)
    try:
        return _method(x)(max_version=_VERSION, dl_device=wanted, copy=copy)
    except TypeError as refused:
        if type(refused) is not TypeError:
            raise
        # From before version 1: it hands out what it has, where it is.
        if copy or (wanted is not None and wanted != tuple(x.__dlpack_device__())):
            raise BufferError(f"{type(x).__name__} speaks DLPack from before version 1: it can neither copy nor move; "
                              "take it as it is, and use .to(space)") from None
        return _method(x)()


cdef object _method(object x):
    method = getattr(x, "__dlpack__", None)
    if method is None:
        raise TypeError(f"{type(x).__name__} does not speak DLPack: it has no __dlpack__")
    return method


cdef Tensor _from_capsule(object capsule):
    cdef ForeignTensor owner
    if not PyCapsule_CheckExact(capsule):
        raise TypeError(f"__dlpack__ gives a capsule, not {type(capsule).__name__}")
    if PyCapsule_IsValid(capsule, "dltensor_versioned"):
        versioned = <ManagedTensorVersioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned")
        PyCapsule_SetName(capsule, "used_dltensor_versioned")
        return _take(versioned)
    if PyCapsule_IsValid(capsule, "dltensor"):
        owner = ForeignTensor.__new__(ForeignTensor)
        legacy = <ManagedTensor*>PyCapsule_GetPointer(capsule, "dltensor")
        PyCapsule_SetName(capsule, "used_dltensor")
        owner.legacy = legacy
        return _take_legacy(owner)
    name = PyCapsule_GetName(capsule)
    text = "without a name" if name is NULL else (<bytes>name).decode(errors="replace")
    raise BufferError(f"a DLPack capsule is called dltensor or dltensor_versioned, not {text!r}; a used one is empty")


# From here on the struct is ours to give back, whatever happens.
cdef Tensor _take(ManagedTensorVersioned* managed):
    cdef ForeignTensor owner = ForeignTensor.__new__(ForeignTensor)
    cdef Checked checked
    owner.versioned = managed
    if is_ours(managed):
        return _again(<Tensor>managed.manager_ctx, managed.flags)
    check(check_managed(managed[0], &checked))
    return _wrap(owner, &managed.dl_tensor, managed.flags, checked)


cdef Tensor _take_legacy(ForeignTensor owner):
    cdef Checked checked
    if is_ours_legacy(owner.legacy):
        return _again(<Tensor>owner.legacy.manager_ctx, 0)
    check(check_tensor(owner.legacy.dl_tensor, 0, &checked))
    return _wrap(owner, &owner.legacy.dl_tensor, 0, checked)


# Our own tensor came back: the same storage.
cdef Tensor _again(Tensor origin, uint64_t flags):
    cdef Tensor made = new_tensor(origin.storage, origin.element, origin.first, origin.rank,
                                  origin._readonly or flags & kReadOnly)
    memcpy(made.dims, origin.dims, 2 * origin.rank * sizeof(int64_t))
    return made


cdef Tensor _wrap(ForeignTensor owner, const DLTensor* given, uint64_t flags, const Checked& checked):
    cdef int32_t rank = given.ndim
    cdef bint readonly = flags & kReadOnly
    cdef ElementType element = element_from_code(given.dtype.code, given.dtype.bits, given.dtype.lanes,
                                                 flags & kSubbytePadded)
    cdef Storage storage
    cdef Tensor made
    if given.device.device_type == 1:
        storage = new_storage(checked.lowest, checked.nbytes, owner, _main, _mem, _host, 1, 0, True, readonly)
    else:
        space, driver, host = _above.foreign_place(given.device.device_type, given.device.device_id)
        storage = new_storage(checked.lowest, checked.nbytes, owner, space, _mem, driver, given.device.device_type,
                              given.device.device_id, host, readonly)
    made = new_tensor(storage, element, checked.first, rank, readonly)
    memcpy(made.dims, given.shape, rank * sizeof(int64_t))
    if given.strides is NULL:
        row_major_strides(rank, made.dims, made.dims + rank)
    else:
        memcpy(made.dims + rank, given.strides, rank * sizeof(int64_t))
    return made


# ---- The C exchange API, of others ----

cdef const ExchangeApi* _exchange_of(object x):
    cdef PyObject* offered = _PyType_Lookup(Py_TYPE(x), _EXCHANGE_NAME)
    cdef ExchangeApiHeader* header
    if offered is NULL or not PyCapsule_IsValid(<object>offered, "dlpack_exchange_api"):
        return NULL
    header = <ExchangeApiHeader*>PyCapsule_GetPointer(<object>offered, "dlpack_exchange_api")
    # Tables of older versions hang behind the newest one.
    while header is not NULL and header.version.major != kMajor:
        header = header.prev_api
    return <const ExchangeApi*>header


cdef ManagedTensorVersioned* _by_exchange(object x):
    # NULL where the way through Python has to be taken; it also explains what goes wrong.
    cdef const ExchangeApi* api = _exchange_of(x)
    cdef ManagedTensorVersioned* managed = NULL
    if api is NULL or api.managed_tensor_from_py_object_no_sync is NULL:
        return NULL
    if api.managed_tensor_from_py_object_no_sync(<void*>x, &managed) != 0 or managed is NULL:
        PyErr_Clear()
        return NULL
    if _PyType_Lookup(Py_TYPE(x), _NEGATIVE_NAME) is not NULL and (
            x.is_neg() or (managed.dl_tensor.dtype.code == kComplex and x.is_conj())):
        # The bytes are not the values yet; the way through Python refuses.
        if managed.deleter is not NULL:
            managed.deleter(managed)
        return NULL
    if managed.version.major == kMajor and managed.dl_tensor.device.device_type != 1:
        # Streams have to be ordered, and only the other way can say which.
        if managed.deleter is not NULL:
            managed.deleter(managed)
        return NULL
    return managed


def time_exchange(x, rounds):
    """Nanoseconds for `x` to become a C tensor by the exchange API of its type and to be given back, on average."""
    cdef const ExchangeApi* api = _exchange_of(x)
    cdef ManagedTensorVersioned* managed = NULL
    cdef int64_t count = rounds
    cdef int64_t i
    if api is NULL or api.managed_tensor_from_py_object_no_sync is NULL:
        raise TypeError(f"{type(x).__name__} offers no C exchange API of major version {kMajor}")
    if count < 1:
        raise errors.InvalidArgument(f"at least one round is needed, not {rounds}")
    start = time.perf_counter_ns()
    for i in range(count):
        if api.managed_tensor_from_py_object_no_sync(<void*>x, &managed) != 0:
            raise BufferError("the exchange API failed")
        managed.deleter(managed)
    return (time.perf_counter_ns() - start) / rounds


# ---- For the conformance suite: the other side, in C, because it is called in the middle of exceptions ----

cdef void _count_versioned(ManagedTensorVersioned* managed) noexcept nogil:
    (<int64_t*>managed.manager_ctx)[0] += 1


cdef void _count_legacy(ManagedTensor* managed) noexcept nogil:
    (<int64_t*>managed.manager_ctx)[0] += 1


cdef extern from "Python.h":
    # Of a capsule that is being destroyed, which must not become an object again.
    int _dying_is_valid "PyCapsule_IsValid"(PyObject* capsule, const char* name)
    void* _dying_pointer "PyCapsule_GetPointer"(PyObject* capsule, const char* name)
    void* _dying_context "PyCapsule_GetContext"(PyObject* capsule)
    int PyCapsule_SetContext(object capsule, void* context) except -1
    int PyCapsule_SetDestructor(object capsule, PyCapsule_Destructor destructor) except -1


cdef void _drop_probe(PyObject* capsule) noexcept:
    # Nobody took the tensor out: it goes back all the same.
    cdef ManagedTensorVersioned* versioned
    cdef ManagedTensor* legacy
    if _dying_is_valid(capsule, "dltensor_versioned"):
        versioned = <ManagedTensorVersioned*>_dying_pointer(capsule, "dltensor_versioned")
        if versioned.deleter is not NULL:
            versioned.deleter(versioned)
    elif _dying_is_valid(capsule, "dltensor"):
        legacy = <ManagedTensor*>_dying_pointer(capsule, "dltensor")
        if legacy.deleter is not NULL:
            legacy.deleter(legacy)
    Py_DECREF(<object>_dying_context(capsule))


def counting_deleter(bint versioned):
    """The address of a deleter that adds one to the 64-bit number that `manager_ctx` points to."""
    return <uint64_t>_count_versioned if versioned else <uint64_t>_count_legacy


def capsule_around(address, bint versioned, keeper):
    """A capsule around the struct at an address, which `keeper` keeps."""
    cdef uint64_t place = address
    capsule = PyCapsule_New(<void*>place, "dltensor_versioned" if versioned else "dltensor", NULL)
    PyCapsule_SetContext(capsule, <void*>keeper)
    Py_INCREF(keeper)
    PyCapsule_SetDestructor(capsule, _drop_probe)
    return capsule


# ---- The C exchange API, of ours ----

cdef int _managed_from_object(void* given, ManagedTensorVersioned** out) noexcept:
    try:
        out[0] = make_managed(_ours(<object>given))
        return 0
    except BaseException as error:
        return _raise(error)


cdef int _tensor_from_object(void* given, DLTensor* out) noexcept:
    # Borrowed: it points into the tensor, which the caller holds.
    cdef Tensor tensor
    try:
        tensor = _ours(<object>given)
        describe(tensor, out, tensor.show_first())
        return 0
    except BaseException as error:
        return _raise(error)


cdef int _object_from_managed(ManagedTensorVersioned* managed, void** out) noexcept:
    # It is ours only when all went well; otherwise it stays the caller's.
    cdef Checked checked
    try:
        if managed is NULL:
            raise errors.InvalidDLPack(0, what="the tensor is NULL")
        if not is_ours(managed):
            check(check_managed(managed[0], &checked))
            if managed.dl_tensor.device.device_type != 1:
                _above.foreign_place(managed.dl_tensor.device.device_type, managed.dl_tensor.device.device_id)
        made = _take(managed)
        Py_INCREF(made)
        out[0] = <void*>made
        return 0
    except BaseException as error:
        return _raise(error)


cdef int _allocate_like(DLTensor* prototype, ManagedTensorVersioned** out, void* context,
                        SetError set_error) noexcept with gil:
    try:
        out[0] = make_managed(_like(prototype))
        return 0
    except BaseException as error:
        if set_error is not NULL:
            kind, message = type(error).__name__.encode(), str(error).encode()
            set_error(context, <const char*>kind, <const char*>message)
        return -1


cdef int _work_stream(int32_t device_type, int32_t device_id, void** out) noexcept:
    # Work that names no stream runs on the default one.
    out[0] = NULL
    return 0


cdef Tensor _ours(object given):
    if type(given) is not Tensor:
        raise TypeError(f"this exchange API is for tensormem.Tensor, not {type(given).__name__}")
    cdef Tensor tensor = given
    tensor.storage.check_open()
    if tensor.storage.is_pending() and tensor.storage.device_type == 1:
        tensor.storage.settle()
    return tensor


cdef Tensor _like(DLTensor* prototype):
    cdef DLTensor layout = prototype[0]
    cdef Checked checked
    layout.data = <void*>4096  # only the layout is looked at
    layout.byte_offset = 0
    layout.strides = NULL
    check(check_tensor(layout, 0, &checked))
    element = element_from_code(layout.dtype.code, layout.dtype.bits, layout.dtype.lanes, False)
    shape = tuple([layout.shape[i] for i in range(layout.ndim)])
    return _above.empty_on_device(shape, element.dtype, (layout.device.device_type, layout.device.device_id))


cdef int _raise(object error) noexcept:
    PyErr_SetObject(type(error), error)
    return -1


cdef ExchangeApi _api
_api.header.version.major = kMajor
_api.header.version.minor = kMinor
_api.header.prev_api = NULL
_api.managed_tensor_allocator = _allocate_like
_api.managed_tensor_from_py_object_no_sync = _managed_from_object
_api.managed_tensor_to_py_object_no_sync = _object_from_managed
_api.dltensor_from_py_object_no_sync = _tensor_from_object
_api.current_work_stream = _work_stream
# The type is compiled, so its dictionary is reached directly; the table lives as long as the process.
(<dict>(<PyTypeObject*>Tensor).tp_dict)[_EXCHANGE_NAME] = PyCapsule_New(&_api, "dlpack_exchange_api", NULL)
PyType_Modified(<PyTypeObject*>Tensor)
