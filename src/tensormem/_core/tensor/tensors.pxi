"""Owns: `Tensor`, the description of bytes: a storage with an element type, shape, strides and offset. How shapes are
read, views cut, buffers and DLPack structs filled, and tensors made, is in the files with these names.

Shape and strides never change, so what is handed out points into them. Must not know: spaces, memories and other
libraries; what needs them is done by `tensormem.tensor`, which installs itself here (`install_tensors`).
"""
cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool

from tensormem._core.construction cimport begin_construction
from tensormem._core.failures cimport check
from tensormem._core.native_tensor cimport (
    Code,
    ManagedTensorVersioned,
    Reach,
    is_row_major,
    kIsCopied,
    measure_layout,
    reshape_strides,
    row_major_strides,
)
from tensormem._core.resource cimport DeviceBlock, DeviceMemoryResource

from tensormem import errors
from tensormem.awaitables import await_in_thread


cdef extern from "Python.h":
    int PyLong_CheckExact(object value)
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1
    object PyNumber_Index(object value)
    ctypedef void (*PyCapsule_Destructor)(PyObject*) noexcept
    object PyCapsule_New(void* pointer, const char* name, PyCapsule_Destructor destructor)
    int PyCapsule_IsValid(PyObject* capsule, const char* name)
    void* PyCapsule_GetPointer(PyObject* capsule, const char* name)
    int PyContextVar_Get(object var, PyObject* fallback, PyObject** value) except -1


cdef extern from "_core/gil.hpp" namespace "tensormem":
    cbool interpreter_is_ending() nogil


# What `tensormem.tensor` installed, and where the current resource of main memory is found.
cdef object _above = None
cdef object _in_use = None
cdef dict _resources = {}
cdef object _HOST_PLACE = ("host", 0)


def install_tensors(above, in_use, resources):
    """Called once by `tensormem.tensor`: what is done above, and the two cells that hold the current resource."""
    global _above, _in_use, _resources
    _above, _in_use, _resources = above, in_use, resources


cdef CloneNow _quick_clone = NULL
cdef object _copy_into = None


cdef MoveNow _quick_move = NULL


cdef void install_copies(CloneNow clone_now, MoveNow move_now, object copy_into):
    global _quick_clone, _quick_move, _copy_into
    _quick_clone, _quick_move, _copy_into = clone_now, move_now, copy_into


# Which resource served a space that the CPU reaches, by what was given as the space, until somebody changes that.
cdef dict _destinations = {}


def forget_destinations():
    """Ask again which resource serves a space: called when drivers come or go, and when a resource is set."""
    _destinations.clear()


cdef int _remember_destination(object space, Tensor made) except -1:
    if type(space) is str and made.storage.host and made.storage.accesses is None and (
            type(made.storage._owner) is DeviceBlock and len(_destinations) < 64):
        _destinations[space] = (<DeviceBlock>made.storage._owner)._mr, made.storage.space
    return 0


cdef DeviceMemoryResource destination_of(Tensor tensor, object space):
    if type(space) is not str:
        return None
    known = _destinations.get(space)
    return None if known is None or known[1] is tensor.storage.space else <DeviceMemoryResource>known[0]


cdef bint _resources_are_local() except -1:
    cdef PyObject* local = NULL
    PyContextVar_Get(_in_use, NULL, &local)
    if local is NULL:
        return False
    mine = <object>local
    Py_DECREF(mine)
    return mine is not None


@cython.final
@cython.freelist(256)
@cython.no_gc_clear
cdef class Tensor:
    """A description of bytes: storage, element type, shape, strides (in elements) and offset (in bytes).

    Made by `tm.empty`, `tm.zeros`, `tm.full` and `tm.from_*`; with this constructor, over a storage that exists. Its
    views share the storage. There is no arithmetic: hand it to a library that has some, by DLPack, without a copy.

    >>> import tensormem as tm
    >>> tensor = tm.from_buffer(bytearray(range(6)), "uint8", (2, 3))
    >>> tensor.shape, tensor.strides, tensor[:, ::-1].tolist()
    ((2, 3), (3, 1), [[2, 1, 0], [5, 4, 3]])
    """

    def __init__(self, Storage storage not None, dtype, shape, *, strides=None, offset=0, readonly=None):
        begin_construction(self._construction, self)
        cdef int64_t[64] lengths
        cdef int64_t[64] steps
        cdef Reach reach
        cdef int32_t rank = parse_shape(shape, lengths)
        cdef ElementType element = element_of(dtype)
        storage.check_open()
        if strides is None:
            check(measure_layout(rank, lengths, NULL, element.width, Code.invalid_size, &reach))
            row_major_strides(rank, lengths, steps)
        else:
            _parse_strides(strides, rank, steps)
            check(measure_layout(rank, lengths, steps, element.width, Code.invalid_size, &reach))
        start = _offset(offset)
        if reach.count and (reach.below > start or start + reach.above > storage.capacity):
            raise errors.InvalidOffset(start - reach.below, reach.below + reach.above, storage.capacity,
                                       what="the tensor does not lie inside its storage")
        if start > storage.capacity:
            raise errors.InvalidOffset(start, 0, storage.capacity, what="the tensor starts behind its storage")
        if readonly is not None and not readonly and storage._readonly:
            raise errors.InvalidArgument("the storage is read-only")
        self.storage = storage
        self.element = element
        self.first = storage.address + <uint64_t>start
        self._readonly = storage._readonly if readonly is None else bool(readonly)
        _set_rank(self, rank)
        memcpy(self.dims, lengths, rank * sizeof(int64_t))
        memcpy(self.dims + rank, steps, rank * sizeof(int64_t))

    def __dealloc__(self):
        if self._address_read:
            self.storage.accesses.leave(self._readonly)
        if self.dims != self._inline:
            PyMem_Free(self.dims)

    # ---- What it is ----

    @property
    def dtype(self):
        """The element type."""
        return self.element.dtype

    @property
    def shape(self):
        """The lengths."""
        return _as_tuple(self.dims, self.rank)

    @property
    def strides(self):
        """The distance to the next element along each dimension, in elements; negative ones go backward."""
        return _as_tuple(self.dims + self.rank, self.rank)

    @property
    def offset(self):
        """Bytes from the start of the storage to the first element."""
        return self.first - self.storage.address

    @property
    def ndim(self):
        """The number of dimensions."""
        return self.rank

    @property
    def size(self):
        """The number of elements."""
        return self.count()

    @property
    def itemsize(self):
        """Bytes of one element; packed elements of less than a byte count as one."""
        return self.element.width.bytes()

    @property
    def nbytes(self):
        """Bytes of all elements, without gaps."""
        return self.nbytes_()

    @property
    def ptr(self):
        """The address of the first element. Memory that has one only while it is mapped: `NotSupported`."""
        self.storage.check_open()
        self.storage.check_address()
        return self.first

    @property
    def space(self):
        """Where the bytes live."""
        return self.storage.space

    @property
    def memory(self):
        """What kind of memory it is."""
        return self.storage.memory

    @property
    def memory_reason(self):
        """Why it is this kind of memory; "" when that was asked for."""
        return self.storage.reason

    @property
    def readonly(self):
        """Whether it may only be read."""
        return self._readonly

    @property
    def is_contiguous(self):
        """Whether the elements lie row-major without gaps."""
        return is_row_major(self.rank, self.dims, self.steps())

    @property
    def ready(self):
        """Whether no copy into its storage is under way."""
        return self.storage.ready

    def wait(self, timeout=None):
        """Wait until no copy into its storage is under way; returns the tensor. `TimedOut` after `timeout` seconds."""
        self.storage.settle(timeout)
        return self

    def __await__(self):
        """`await tensor` waits like `wait()`, in a thread, while other tasks go on; gives the tensor."""
        return await_in_thread(self.ready, self.wait, self)

    @property
    def transfer_report(self):
        """How the bytes came here by the last copy into the storage; None if there was none."""
        return self.storage.transfer

    @property
    def closed(self):
        """Whether the storage was closed."""
        return self.storage.is_closed()

    def aliases(self, Tensor other not None):
        """Whether both describe the same memory, or parts of it."""
        return self.storage._id == other.storage._id

    def close(self):
        """Close the storage, for every view of it; `BufferError` while somebody outside holds its address."""
        self.storage.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.storage.close()

    def __len__(self):
        if self.rank == 0:
            raise TypeError("a tensor without dimensions has no length")
        return self.dims[0]

    # ---- One value as Python's ----

    def __bool__(self):
        if self.count() != 1:
            raise errors.InvalidArgument(
                f"the truth value of a tensor of {self.count()} elements is ambiguous; ask for .size, or a library that "
                "computes")
        return bool(_value_of(self))

    def __int__(self):
        return int(_one_value(self, "int"))

    def __float__(self):
        return float(_one_value(self, "float"))

    def __complex__(self):
        return complex(_one_value(self, "complex"))

    def __index__(self):
        if self.rank != 0 or self.element.lanes != 1 or self.element.code > 1:
            raise TypeError(f"only a tensor of one whole number without dimensions is an index, not {self.element.dtype} "
                            f"of shape {self.shape}")
        return _value_of(self)

    # ---- Views ----

    def __getitem__(self, index):
        """A view: whole numbers select, slices cut (steps may be negative), `...` and None as in NumPy."""
        cdef int64_t[64] lengths
        cdef int64_t[64] steps
        cdef int64_t moved = 0
        cdef int32_t made = 0, dim = 0, given = 0
        cdef Tensor result
        if PyLong_CheckExact(index) and self.rank > 0:
            return _first_selected(self, _select(self, 0, index))
        parts = index if type(index) is tuple else (index,)
        for part in parts:
            given += part is not None and part is not Ellipsis
        if given > self.rank:
            raise IndexError(f"{given} indices for {self.rank} dimensions")
        dots = False
        for part in parts:
            if part is None:
                _check_room(made)
                lengths[made], steps[made] = 1, 1
                made += 1
            elif part is Ellipsis:
                if dots:
                    raise IndexError("one '...' is enough")
                dots = True
                for _ in range(self.rank - given):
                    _check_room(made)
                    lengths[made], steps[made] = self.dims[dim], self.steps()[dim]
                    made, dim = made + 1, dim + 1
            elif isinstance(part, slice):
                _check_room(made)
                moved += _cut(self, dim, part, &lengths[made], &steps[made])
                made, dim = made + 1, dim + 1
            else:
                moved += _select(self, dim, part)
                dim += 1
        while dim < self.rank:
            _check_room(made)
            lengths[made], steps[made] = self.dims[dim], self.steps()[dim]
            made, dim = made + 1, dim + 1
        result = self.view(_moved(self, moved, lengths, made), made)
        memcpy(result.dims, lengths, made * sizeof(int64_t))
        memcpy(result.dims + made, steps, made * sizeof(int64_t))
        return result

    def select(self, dim, index):
        """A view without dimension `dim`, at `index` of it."""
        cdef int32_t axis = _axis(self, dim)
        cdef Tensor result = self.view(_moved(self, _select(self, axis, index), NULL, 0), self.rank - 1)
        cdef int32_t i, j = 0
        for i in range(self.rank):
            if i != axis:
                result.dims[j], result.dims[result.rank + j] = self.dims[i], self.steps()[i]
                j += 1
        return result

    def permute(self, *dims):
        """A view with the dimensions in another order."""
        order = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
        axes = [_axis(self, dim) for dim in order]
        if sorted(axes) != list(range(self.rank)):
            raise errors.InvalidArgument(f"{tuple(order)} does not name each of {self.rank} dimensions once")
        cdef Tensor result = self.view(self.first, self.rank)
        cdef int32_t i
        for i in range(self.rank):
            result.dims[i], result.dims[self.rank + i] = self.dims[<int32_t>axes[i]], self.steps()[<int32_t>axes[i]]
        return result

    @property
    def T(self):
        """A view with the dimensions in reverse order."""
        return self.permute(*range(self.rank - 1, -1, -1))

    def transpose(self, dim0, dim1):
        """A view with two dimensions exchanged."""
        axes = list(range(self.rank))
        a, b = _axis(self, dim0), _axis(self, dim1)
        axes[a], axes[b] = b, a
        return self.permute(*axes)

    def squeeze(self, dim=None):
        """A view without dimensions of length 1: all of them, or the one named, which must have that length."""
        cdef int32_t keep_all_but = -1
        if dim is not None:
            keep_all_but = _axis(self, dim)
            if self.dims[keep_all_but] != 1:
                raise errors.InvalidArgument(f"dimension {dim} has length {self.dims[keep_all_but]}, not 1")
        kept = [i for i in range(self.rank) if (i != keep_all_but if dim is not None else self.dims[i] != 1)]
        cdef Tensor result = self.view(self.first, len(kept))
        for j, i in enumerate(kept):
            result.dims[<int32_t>j], result.dims[result.rank + <int32_t>j] = self.dims[<int32_t>i], self.steps()[<int32_t>i]
        return result

    def unsqueeze(self, dim):
        """A view with a new dimension of length 1 at `dim`."""
        rank = self.rank + 1
        place = dim.__index__()
        if not -rank <= place < rank:
            raise errors.InvalidArgument(f"a new dimension goes to {-rank} up to {rank - 1}, not {place}")
        return self[(*(slice(None),) * (place % rank), None)]

    def broadcast_to(self, shape):
        """A read-only view in which dimensions of length 1, and new ones in front, are repeated without memory."""
        cdef int64_t[64] lengths
        cdef int32_t rank = parse_shape(shape, lengths)
        cdef int32_t i, new = rank - self.rank
        cdef Reach reach
        for i in range(self.rank):
            if new < 0 or (self.dims[i] != lengths[new + i] and self.dims[i] != 1):
                raise errors.InvalidArgument(f"{self.shape} cannot be broadcast to {_as_tuple(lengths, rank)}")
        if self.element.width.packed:
            raise errors.NotSupported("broadcasting elements that share bytes")
        check(measure_layout(rank, lengths, NULL, self.element.width, Code.invalid_size, &reach))
        cdef Tensor result = self.view(self.first, rank)
        for i in range(rank):
            result.dims[i] = lengths[i]
            result.dims[rank + i] = 0 if i < new or self.dims[i - new] != lengths[i] else self.steps()[i - new]
        result._readonly = True
        return result

    def reshape(self, *shape):
        """A view of the same elements in another shape; one length may be -1. Where only a copy could: `InvalidArgument`,
        and `contiguous()` makes that copy."""
        cdef int64_t[64] lengths
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        cdef int32_t rank = parse_shape(_complete(given, self.count()), lengths)
        cdef Reach reach
        check(measure_layout(rank, lengths, NULL, self.element.width, Code.invalid_size, &reach))
        if reach.count != self.count():
            raise errors.InvalidArgument(f"{_as_tuple(lengths, rank)} has {reach.count} elements, not {self.count()}")
        cdef Tensor result = self.view(self.first, rank)
        memcpy(result.dims, lengths, rank * sizeof(int64_t))
        if not reshape_strides(self.rank, self.dims, self.steps(), rank, lengths, result.dims + rank):
            raise errors.InvalidArgument(f"{self.shape} with strides {self.strides} has no view of shape "
                                         f"{_as_tuple(lengths, rank)}; copy it first, with .contiguous()")
        return result

    def set_logical_shape(self, shape):
        """A tensor over the same storage with any shape that fits, row-major from this one's first element.

        `InvalidOffset` where it does not fit. For buffers that hold less than they could.
        """
        return Tensor(self.storage, self.element.dtype, shape, offset=self.offset, readonly=self._readonly)

    def as_readonly(self):
        """A view that nobody may write through."""
        cdef Tensor result = self.view(self.first, self.rank)
        memcpy(result.dims, self.dims, 2 * self.rank * sizeof(int64_t))
        result._readonly = True
        return result

    # ---- Copies and values: done above ----

    def to(self, space, *, stream=None, copy=None):
        """The same values in `space`. There already: the tensor itself, or a copy if `copy` is True.

        Otherwise a copy on `stream`, which may be under way when this returns: see `ready` and `wait()`. With `copy`
        False, `CrossSpaceError` instead of a copy. `transfer_report` of the result tells how it went.
        """
        cdef Tensor made = None
        if not copy and self.storage.space is space:
            return self
        if stream is None and copy is not False and not _resources_are_local():
            made = _quick_move(self, space)
            if made is None:
                made = _above.to(self, space, stream=None, copy=copy)
                _remember_destination(space, made)
            return made
        return _above.to(self, space, stream=stream, copy=copy)

    def copy_(self, source, *, stream=None):
        """Copy the values of `source`, a tensor of the same shape and element type, into this one; tells how it went.

        `CrossSpaceError` if the two are in different spaces: move one first, with `to`.
        """
        return _copy_into(self, source, stream=stream)

    def contiguous(self, *, stream=None):
        """The tensor itself if its elements lie row-major without gaps, else a copy of which that is true."""
        return self if is_row_major(self.rank, self.dims, self.steps()) else self.clone(stream=stream)

    def clone(self, *, stream=None):
        """A copy in the same space, row-major without gaps."""
        cdef Tensor made = None
        if stream is None:
            made = _quick_clone(self)
        return _above.clone(self, stream=stream) if made is None else made

    def fill_(self, value, *, stream=None):
        """Set every element to `value`; gives the tensor.

        On a GPU the driver does it, in the order of `stream`, and it may be under way when this returns, like a copy:
        see `ready` and `wait()`. Memory that the CPU reaches is filled at once unless a stream is given.
        """
        _above.fill(self, value, stream)
        return self

    def clone_fd(self, *, readonly=False, trust=False):
        """A new descriptor of the memory, for another process; the caller closes it. `NotSupported` if there is none.

        It is the whole storage: send shape, strides and offset along. With `readonly`, and always of a read-only
        tensor, nobody can write by it. `trust` allows memory that could not be sealed.
        """
        return _above.clone_fd(self, readonly, trust)

    def numpy(self):
        """A NumPy array over the same bytes; `CrossSpaceError` where the CPU cannot reach them."""
        return _above.numpy(self)

    def tolist(self):
        """The values as nested lists, or one value if there are no dimensions."""
        return _above.tolist(self)

    def item(self):
        """The value of a tensor of one element."""
        if self.count() != 1:
            raise errors.InvalidArgument(f"a tensor of {self.count()} elements is not one value")
        return _above.tolist(self.reshape(()))

    def __copy__(self):
        return self.clone()

    def __deepcopy__(self, memo):
        return self.clone()

    def __reduce_ex__(self, protocol):
        return _above.reduce(self, protocol)

    def __repr__(self):
        return _above.text(self)

    def _repr_html_(self):
        return _above.html(self)

    # ---- Maps, the buffer protocol and the array interfaces ----

    def map(self, mode="rw"):
        """Make the elements reachable by the CPU: "r" to read, "w" to write, "rw" for both.

        Gives a context manager with the buffer protocol; at its end the access is over. Memory that needs it is
        synchronised in the direction that was declared, and "r" cannot be written through.

        >>> import tensormem as tm
        >>> tensor = tm.zeros(3, "uint8")
        >>> with tensor.map("w") as mapped, memoryview(mapped) as view:
        ...     view[1] = 7
        >>> tensor.tolist()
        [0, 7, 0]
        """
        return _map_tensor(self, mode)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        check_buffer(self, flags, self._readonly)
        self.check_host("the buffer protocol")
        cdef uint64_t first = self.lend_first()
        if not fill_buffer(self, self, buffer, flags, first, self._readonly):
            self.storage.let_go(self._readonly)
            raise MemoryError

    def __releasebuffer__(self, Py_buffer* buffer):
        free_buffer(buffer)
        self.storage.let_go(self._readonly)

    @property
    def __array_interface__(self):
        """NumPy's array interface, version 3, for memory that the CPU reaches. Who reads the address here is not counted
        as an export: the buffer protocol and DLPack are safer. An access in brackets is open as long as the tensor is."""
        if not self.storage.mappable or self.storage.untouchable or self.element.typestr is None:
            raise AttributeError("__array_interface__")
        self.storage.check_open()
        self.storage.settle()
        return self._interface(3, self.show_first())

    @property
    def __cuda_array_interface__(self):
        """The CUDA array interface, version 3, for memory that a CUDA device reaches."""
        if self.storage.device_type not in (2, 3, 13) or self.storage.untouchable or self.element.typestr is None:
            raise AttributeError("__cuda_array_interface__")
        self.storage.check_open()
        self.storage.settle()
        return {**self._interface(3, self.first), "stream": None}

    def _interface(self, version, first):
        item = self.element.width.bytes()
        return {
            "version": version,
            "shape": self.shape,
            "typestr": self.element.typestr,
            "data": (first, bool(self._readonly)),
            "strides": tuple(step * item for step in self.strides),
        }

    # ---- DLPack, as a producer ----

    def __dlpack_device__(self):
        """DLPack's (device_type, device_id)."""
        self.storage.check_reach("DLPack")
        return self.storage.device_type, self.storage.device_id

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule with a DLPack tensor over the same bytes, as the array API standard has it.

        Versioned from `max_version` (1, 0) on, legacy without. `BufferError` when it cannot be had: read-only memory as
        a legacy tensor or for PyTorch, which has no such tensors; another device or order of bytes without a copy.
        """
        cdef Tensor tensor = self
        cdef ManagedTensorVersioned* managed
        if copy is not None or dl_device is not None:
            tensor = _placed(self, dl_device, copy)
        if tensor._readonly:
            _above.check_reader()
        tensor.storage.check_open()
        tensor.storage.check_reach("DLPack")
        if stream is not None or tensor.storage.is_pending() or tensor.storage.device_type != 1:
            _order(tensor, stream)
        cdef int64_t minor = _wanted_minor(max_version)
        if minor < 0:
            return _legacy_capsule(tensor)
        managed = make_managed(tensor)
        managed.version.minor = <uint32_t>minor
        if tensor is not self and tensor.storage is not self.storage:
            managed.flags |= kIsCopied
        try:
            return PyCapsule_New(managed, "dltensor_versioned", _drop_versioned)
        except BaseException:
            managed.deleter(managed)
            raise

    # ---- Inside ----

    cdef uint64_t count(self):
        cdef uint64_t total = 1
        cdef int32_t i
        for i in range(self.rank):
            total *= <uint64_t>self.dims[i]
        return total

    cdef uint64_t nbytes_(self):
        if self.element.width.packed:
            return (self.count() * self.element.width.bits + 7) // 8
        return self.count() * self.element.width.bytes()

    cdef int check_host(self, str what) except -1:
        # The bytes are there to be touched, and whatever writes them is done.
        self.storage.check_open()
        self.storage.check_reach(what)
        if not self.storage.host and self.storage.accesses is None:
            raise BufferError(f"{what} needs memory that the CPU reaches; this is in {self.storage.space}: use .to('main')")
        if self.storage.is_pending():
            self.storage.settle()
        return 0

    cdef uint64_t lend_first(self) except? 0:
        # The address of the first element, for somebody outside who will say when he is done (`storage.let_go`).
        return self.storage.lend(self._readonly) + (self.first - self.storage.address)

    cdef uint64_t show_first(self) except? 0:
        # The same for somebody who cannot say so: he holds the tensor, and the access lasts as long as it does.
        cdef uint64_t base
        if self.storage.accesses is None:
            return self.first
        base = self.storage.accesses.join(self._readonly)
        if self._address_read:
            self.storage.accesses.leave(self._readonly)
        self._address_read = True
        return base + (self.first - self.storage.address)

    cdef int check_mapped(self) except -1:
        # Along the first dimension, because the gaps are between its elements.
        cdef Reach reach
        cdef int64_t i
        cdef int64_t item = <int64_t>self.element.width.bytes()
        cdef int32_t inner = 1 if self.rank > 0 else 0
        if self.storage.paged is None or self.count() == 0:
            return 0
        check(measure_layout(self.rank - inner, self.dims + inner, self.steps() + inner, self.element.width,
                             Code.invalid_size, &reach))
        for i in range(self.dims[0] if inner else 1):
            start = self.first + i * self.steps()[0] * item if inner else self.first
            self.storage.paged.check_mapped(start - reach.below, reach.below + reach.above)
        return 0

    def _check_mapped(self):
        # For the rooms above, before they read values.
        self.check_mapped()

    cdef Tensor view(self, uint64_t first, int32_t rank):
        return new_tensor(self.storage, self.element, first, rank, self._readonly)


cdef object _one_value(Tensor tensor, str name):
    if tensor.count() != 1:
        raise TypeError(f"only a tensor of one element can become {name}, not one of shape {tensor.shape}")
    return _value_of(tensor)


cdef object _value_of(Tensor tensor):
    # The value of the only element: at once for plain memory of the CPU and common types, else as `tolist` reads it.
    cdef Storage storage = tensor.storage
    cdef ElementType element = tensor.element
    cdef void* at = <void*>tensor.first
    if not storage.host or storage.accesses is not None or storage.is_pending() or storage.untouchable or (
            storage.paged is not None or element.lanes != 1):
        return _above.tolist(tensor.reshape(()))
    storage.check_open()
    if element.code == 2 and element.bits == 32:
        return (<float*>at)[0]
    if element.code == 2 and element.bits == 64:
        return (<double*>at)[0]
    if element.code == 0 and element.bits == 64:
        return (<int64_t*>at)[0]
    if element.code == 0 and element.bits == 32:
        return (<int32_t*>at)[0]
    if element.code == 1 and element.bits == 8:
        return (<unsigned char*>at)[0]
    if element.code == 6 and element.bits == 8:
        return (<unsigned char*>at)[0] != 0
    return _above.tolist(tensor.reshape(()))


cdef int _set_rank(Tensor tensor, int32_t rank) except -1:
    tensor.rank = rank
    tensor.dims = tensor._inline
    if rank > 6:
        tensor.dims = <int64_t*>PyMem_Malloc(2 * rank * sizeof(int64_t))
        if tensor.dims is NULL:
            tensor.dims = tensor._inline
            tensor.rank = 0
            raise MemoryError
    return 0


cdef Tensor new_tensor(Storage storage, ElementType element, uint64_t first, int32_t rank, bint readonly):
    cdef Tensor made = Tensor.__new__(Tensor)
    made._construction.begin()
    made.storage = storage
    made.element = element
    made.first = first
    made._readonly = readonly
    _set_rank(made, rank)
    return made


cdef tuple _as_tuple(const int64_t* numbers, int32_t count):
    if count == 1:
        return (numbers[0],)
    if count == 2:
        return (numbers[0], numbers[1])
    return tuple([numbers[i] for i in range(count)])
