"""Owns: `TensorMap`, an access of the CPU to the elements of a tensor with a beginning and an end, and the count of the
buffers and arrays that still hold its address.

Must not know: how memory of a kind is made reachable; the storage's owner does that.
"""
cimport cython
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t

from tensormem._core.construction cimport Construction, begin_construction, only_the_core_makes
from tensormem._core.resource cimport ExportCount
from tensormem._core.base cimport report_unraisable

from tensormem import errors


@cython.final
@cython.freelist(32)
@cython.no_gc_clear
cdef class TensorMap:
    """The elements of a tensor, reachable by the CPU until `unmap()`; made by `Tensor.map` and `Storage.map`.

    It has the buffer protocol, with the tensor's shape and strides; "r" maps are read-only. While a buffer or array of
    it lives it cannot be unmapped (`BufferError`), so none ever points at nothing.

    >>> import tensormem as tm
    >>> with tm.full(3, 2, "int16").map("r") as mapped:
    ...     print(mapped.mode, memoryview(mapped).tolist(), mapped.mapped)
    r [2, 2, 2] True
    >>> mapped.mapped
    False
    """

    cdef readonly Tensor tensor
    cdef readonly str mode
    cdef uint64_t base  # where the storage begins, during this access
    cdef bint _mapped
    cdef bint _leaving  # ends with its last export
    cdef ExportCount exports
    cdef object __weakref__

    def __dealloc__(self):
        if self._mapped:
            self._end_quietly()

    @property
    def mapped(self):
        """Whether it has not been unmapped yet."""
        return self._mapped

    @property
    def readonly(self):
        """Whether nothing can be written through it."""
        return self.mode == "r"

    @property
    def ptr(self):
        """The address of the first element during this access."""
        self._check()
        return self._first()

    @property
    def nbytes(self):
        """Bytes of all elements, without gaps."""
        return self.tensor.nbytes_()

    @property
    def export_count(self):
        """How many buffers and arrays of it live."""
        return max(0, self.exports.count())

    def as_tensor(self):
        """A tensor over the mapped elements: by it, other libraries see them through DLPack. It counts as an export."""
        self._check()
        cdef Tensor tensor = self.tensor
        cdef Storage storage = tensor.storage
        again = Storage(self.base, storage.capacity, owner=MapHold(self), space=storage.space, memory=storage.memory,
                        device=storage.device, driver=storage.driver, readonly=self.mode == "r", id=storage._id,
                        reason=storage.reason)
        return Tensor(again, tensor.element.dtype, tensor.shape, strides=tensor.strides, offset=tensor.offset)

    def numpy(self):
        """A NumPy array over the mapped elements; it counts as an export."""
        return self.as_tensor().numpy()

    def unmap(self):
        """End the access. Unmapping twice is unmapping once; `BufferError` while a buffer or array of it lives."""
        if not self._mapped:
            return
        if not self.exports.close():
            raise BufferError(f"this map cannot be ended: {self.export_count} buffers or arrays of it live; drop them "
                              "first")
        self._end()

    def __enter__(self):
        self._check()
        return self

    def __exit__(self, kind, error, trace):
        # What failed inside still holds its arrays in the trace; that is the error to hear of, and the access ends with
        # the last of them.
        self._leaving = True
        if kind is None or self.exports.count() <= 0:
            self.unmap()

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        check_buffer(self.tensor, flags, self.mode == "r")
        self._hold()
        if not fill_buffer(self.tensor, self, buffer, flags, self._first(), self.mode == "r"):
            self._let_go()
            raise MemoryError

    def __releasebuffer__(self, Py_buffer* buffer):
        free_buffer(buffer)
        self._let_go()

    def __reduce__(self):
        raise TypeError("a map is an access of this process and cannot be pickled; pickle the tensor")

    def __repr__(self):
        state = f"{self.export_count} exports" if self._mapped else "unmapped"
        return f"<TensorMap {self.mode!r} of {self.tensor.element.dtype}, {self.tensor.shape}, {state}>"

    cdef uint64_t _first(self) noexcept:
        return self.base + (self.tensor.first - self.tensor.storage.address)

    cdef int _check(self) except -1:
        if not self._mapped:
            raise errors.UseAfterFree(self.tensor.storage._id, self.base, what="the map was unmapped")
        return 0

    cdef int _hold(self) except -1:
        if not self.exports.add():
            raise BufferError("the map was unmapped; map the tensor again")
        return 0

    cdef void _let_go(self) noexcept:
        self.exports.remove()
        if self._leaving and self._mapped and self.exports.close():
            self._end_quietly()

    cdef void _end_quietly(self) noexcept:
        # Where nobody can be told, and perhaps in the middle of another exception, which has to wait.
        cdef PyObject *kind
        cdef PyObject *error
        cdef PyObject *trace
        PyErr_Fetch(&kind, &error, &trace)
        try:
            self._end()
        except BaseException as raised:
            report_unraisable(raised, TensorMap)
        PyErr_Restore(kind, error, trace)

    cdef int _end(self) except -1:
        # Exactly once, whatever comes of it.
        cdef Storage storage = self.tensor.storage
        self._mapped = False
        try:
            if storage.accesses is not None:
                storage.accesses.end_planned(self.mode)
        finally:
            storage.end_view()
        return 0


only_the_core_makes(TensorMap, b"maps come from Tensor.map and Storage.map")


@cython.final
@cython.no_gc_clear
cdef class MapHold:
    """Counts as an export of a map; the owner of the storage that `as_tensor` makes."""

    cdef TensorMap _held
    cdef Construction _construction

    def __init__(self, TensorMap held not None):
        begin_construction(self._construction, self)
        held._hold()
        self._held = held

    def __dealloc__(self):
        if self._held is not None:
            self._held._let_go()

    def release(self):
        """Let go of the map."""
        held, self._held = self._held, None
        if held is not None:
            (<TensorMap>held)._let_go()


cdef str _mode(object mode):
    # Text that was made at run time is compared, not looked up.
    for known in ("r", "w", "rw"):
        if mode == known:
            return known
    raise errors.InvalidArgument(f"memory is mapped 'r', 'w' or 'rw', not {mode!r:.40}")


cdef TensorMap _map_tensor(Tensor tensor, object mode):
    cdef Storage storage = tensor.storage
    cdef TensorMap made = TensorMap.__new__(TensorMap)
    made.mode = _mode(mode)
    tensor.check_host("a map")
    if tensor._readonly and made.mode != "r":
        raise errors.InvalidArgument("the tensor is read-only; map it 'r'")
    made.tensor = tensor
    made.base = storage.address
    storage.begin_view()
    if storage.accesses is not None:
        try:
            made.base = storage.accesses.begin_planned(made.mode)
        except BaseException:
            storage.end_view()
            raise
    made._mapped = True
    return made


cdef TensorMap _map_bytes(Storage storage, object mode):
    return _map_tensor(Tensor(storage, "uint8", (storage.capacity,)), mode)
