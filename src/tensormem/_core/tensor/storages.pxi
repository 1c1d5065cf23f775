"""Owns: `Storage`, the owned bytes behind tensors, with an identity and a count of who holds their address outside; and
`ElementType`, what the compiled core remembers of an element type.

A storage gives its memory back by letting go of its owner, whoever that is. Must not know: resources, kinds of memory.
"""
cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

from tensormem._core.construction cimport begin_construction
from tensormem._core.base cimport Driver, address_of, report_unraisable, size_of
from tensormem._core.native cimport is_handle, is_used
from tensormem._core.native_tensor cimport next_storage_id
from tensormem._core.resource cimport DeviceBlock

from tensormem import errors
from tensormem.dtypes import DType, dtype as _find_dtype


@cython.final
cdef class ElementType:
    """What the compiled core remembers of a `DType`."""

    def __init__(self):
        raise TypeError("element types are made by the compiled core; users have tensormem.dtype")


cdef dict _elements = {}  # by every text that was ever given as a dtype, and by everything else
cdef dict _elements_of_objects = {}
cdef dict _by_code = {}
cdef PyObject* _quick[18][129]  # of one lane, borrowed from `_by_code`, which forgets nothing


cdef ElementType element_of(object dtype):
    cdef ElementType known
    # A DType equals its name: were they keys of one dict, finding one by the other would ask Python.
    cdef dict elements = _elements if type(dtype) is str else _elements_of_objects
    try:
        known = <ElementType>elements.get(dtype)
    except TypeError:  # not hashable, so no dtype either
        known = None
    if known is None:
        found = _find_dtype(dtype)
        known = element_from_code(found.code, found.bits, found.lanes, False)
        if len(elements) < 4096:
            elements[dtype] = known
    return known


cdef ElementType element_from_code(uint8_t code, uint8_t bits, uint16_t lanes, bint padded):
    cdef bint common = lanes == 1 and not padded and code < 18 and bits < 129
    if common and _quick[code][bits] is not NULL:
        return <ElementType>_quick[code][bits]
    cdef uint64_t key = (<uint64_t>padded << 32) | (<uint64_t>lanes << 16) | (<uint64_t>bits << 8) | code
    cdef ElementType known = <ElementType>_by_code.get(key)
    if known is None:
        known = _describe(DType(code, bits, lanes), padded)
        known = _by_code.setdefault(key, known)
        if common:
            _quick[code][bits] = <PyObject*>known
    return known


cdef ElementType _describe(object dtype, bint padded):
    cdef ElementType made = ElementType.__new__(ElementType)
    made.dtype = dtype
    made.code = dtype.code
    made.bits = dtype.bits
    made.lanes = dtype.lanes
    made.width.bits = dtype.itemsize_bits
    made.width.packed = dtype.is_subbyte and not padded
    made.typestr = dtype.typestr
    made.format = None if dtype.buffer_format is None else dtype.buffer_format.encode()
    return made


# Not of a free list: that would take an object for finalised that another one was before it.
@cython.final
@cython.no_gc_clear
cdef class Release(Ending):
    """The end of memory without brackets, at the latest when nobody holds this any more."""

    def __del__(self):
        # Not when it is deallocated: in a cycle of garbage the owner would have lost its attributes by then.
        owner = self._owner
        try:
            if owner is not None:
                self.let_go()
        except BaseException as error:
            report_unraisable(error, owner)


cdef Release _release_of(object owner):
    cdef Release made = Release.__new__(Release)
    made._owner = owner
    return made


@cython.freelist(64)
@cython.no_gc_clear
cdef class Storage:
    """Owned bytes of one kind of memory in one space, with an identity. Tensors that are views of one another share one.

    `owner` is whatever keeps the memory: it is let go exactly once, when the storage is closed or dropped, and if it has
    a `release()` that is called first. A kind of memory of your own makes storages with this constructor. An owner with
    `begin_access` and `end_access` has them called around every access of the CPU (`tensormem.memories.MappedOwner`). One
    with `check_mapped(address, nbytes)` is asked before our own calls touch a range, and raises if it has no memory.

    >>> import tensormem as tm
    >>> tensor = tm.zeros((2, 3))
    >>> storage = tensor.storage
    >>> storage.nbytes, str(storage.memory), storage.space, storage is tensor[0].storage
    (24, 'mem', tm.main, True)
    """

    def __init__(self, address, nbytes, *, owner, space, memory, device, Driver driver=None, bint host_accessible=True,
                 bint readonly=False, id=None, reason=""):
        begin_construction(self._construction, self)
        device_type, device_id = device
        self.address = address_of(address)
        self.capacity = size_of(nbytes)
        nowhere = self.address == 0 and not hasattr(owner, "begin_access")
        number = next_storage_id() if id is None else size_of(id)
        if self.capacity > 0 and (nowhere or self.address + self.capacity < self.address):
            raise errors.InvalidArgument(f"{self.capacity} bytes at address {self.address:#x} are no memory")
        if type(owner) is DeviceBlock:
            _keep_block(<DeviceBlock>owner)
        # From here on nothing fails: the owner is ours to release.
        self._owner = owner
        self.accesses = accesses_of(owner)
        self.paged = owner if hasattr(owner, "check_mapped") else None
        has_release = type(owner) is not DeviceBlock and callable(getattr(owner, "release", None))
        if has_release and self.accesses is None:
            self._release = _release_of(owner)
        self.space = space
        self.memory = memory
        self._reason = reason
        self.driver = driver
        self.device_type = device_type
        self.device_id = device_id
        self.host = host_accessible
        self._readonly = readonly
        self._id = number

    def __dealloc__(self):
        if self._owner is None:
            return
        if type(self._owner) is DeviceBlock:  # every other owner is let go by what this storage holds
            (<DeviceBlock>self._owner)._exports.remove()

    @property
    def id(self):
        """A number that no other memory of this process ever has; what is the same memory has the same one."""
        return self._id

    @property
    def ptr(self):
        """The address of the first byte. Memory that has one only while it is mapped: `NotSupported`."""
        self.check_open()
        self.check_address()
        return self.address

    @property
    def nbytes(self):
        """How many bytes there are."""
        return self.capacity

    @property
    def owner(self):
        """What keeps the memory: a block, another library's object; None when closed."""
        if self.is_closed():
            return None
        with cython.critical_section(self):
            return self._owner

    @property
    def reason(self):
        """Why it is this kind of memory; "" when that was asked for."""
        with cython.critical_section(self):
            return self._reason

    @reason.setter
    def reason(self, reason):
        with cython.critical_section(self):
            self._reason = reason

    @property
    def transfer(self):
        """How the bytes came by the last copy into it; None if there was none."""
        with cython.critical_section(self):
            return self._transfer

    @transfer.setter
    def transfer(self, report):
        self.set_transfer(report)

    @property
    def block(self):
        """The block that a resource counts the memory by, with its tag and resource; None for memory of others."""
        cdef Ending end = self._release if self.accesses is None else self.accesses
        if type(self._owner) is DeviceBlock:
            return self._owner
        return None if end is None else end._block

    @property
    def owner_offset(self):
        """Where it begins in the memory of its owner: 0, or more where a resource has put guards around it."""
        return 0 if self.accesses is None else self.accesses._shift

    @property
    def device(self):
        """DLPack's (device_type, device_id)."""
        return self.device_type, self.device_id

    @property
    def host_accessible(self):
        """Whether the CPU can touch the bytes at `ptr`."""
        return self.host

    @property
    def bracketed(self):
        """Whether its owner is told of every access of the CPU, before and after."""
        return self.accesses is not None

    @property
    def direct(self):
        """Whether copies on a stream may touch the bytes at `ptr`, also where the owner is told of other accesses."""
        return self.is_direct()

    @property
    def mappable(self):
        """Whether the CPU can touch the bytes, be it only while they are mapped."""
        return self.host or self.accesses is not None

    @property
    def readonly(self):
        """Whether nobody may write."""
        return self._readonly

    @property
    def closed(self):
        """Whether the memory was given back."""
        return self.is_closed()

    @property
    def export_count(self):
        """How many use the memory at this moment: buffers, arrays, DLPack tensors, operations of other threads."""
        return max(0, self.exports.count())

    @property
    def operation_count(self):
        """How many of these are operations of other threads, which end by themselves."""
        return self.operations.count()

    @property
    def unplanned_accesses(self):
        """How often a buffer, array or DLPack tensor was taken without a map, of memory that is accessed in brackets."""
        return 0 if self.accesses is None else self.accesses._unplanned

    def map(self, mode="rw"):
        """Make the bytes reachable by the CPU until the map is unmapped; see `Tensor.map`."""
        return _map_bytes(self, mode)

    @property
    def ready(self):
        """Whether no copy into it is under way."""
        cdef Event event = self.pending()
        if event is None:
            return True
        if not event.done:
            return False
        if self._transfer is None or not self._transfer.unheard:  # or else whoever waits is to hear of it
            self._forget_pending(event)
        return True

    def __await__(self):
        """`await storage` waits like `wait()`, in a thread, while other tasks go on; gives the storage."""
        return await_in_thread(self.ready, self.wait, self)

    def wait(self, timeout=None):
        """Wait until no copy into it is under way; `TimedOut` when that takes longer than `timeout` seconds.

        What went wrong with the copy when its turn came is raised once, here or where the bytes are next read.
        """
        self.settle(timeout)

    def mark_pending(self, event):
        """Say that the bytes are being written until `event`. Until then the storage cannot be closed."""
        with cython.critical_section(self):
            self._pending = event
            self._pending_outside = event is not None

    def aliases(self, Storage other not None):
        """Whether it is the same memory."""
        return self._id == other._id

    def close(self):
        """Give the memory back, after the work of streams that uses it, which is not waited for.

        Closing twice is harmless. `BufferError` while somebody uses the memory: an array or buffer over it, or an
        operation of another thread.
        """
        if self.is_closed():
            return
        if self._pending_outside and not self.ready:
            raise BufferError(f"{self!r} cannot be closed: an event that its maker named has not passed; wait for it")
        if self.address != 0 and is_used(self.address, self.capacity):
            raise BufferError(f"{self!r} cannot be closed: a call of another thread was given an address in it")
        if not self.exports.close():
            if self.is_closed():
                return
            raise BufferError(f"{self!r} cannot be closed: in use {self.export_count} times; drop the arrays and "
                              "buffers over it, and let operations of other threads end")
        # Whoever comes last, this or the last of the queued work, gives the memory back.
        if self.queued.close():
            self._give_back()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __reduce__(self):
        raise TypeError("a storage is memory of this process and cannot be pickled; pickle the tensor")

    def __repr__(self):
        state = "closed" if self.is_closed() else f"{self.address:#x}"
        return f"<Storage {self._id}: {self.capacity} bytes of {self.memory} in {self.space}, {state}>"

    cdef Event pending(self):
        with cython.critical_section(self):
            return self._pending

    cdef int set_pending(self, Event event) except -1:
        # By whoever recorded the use, so that the memory is kept until then.
        with cython.critical_section(self):
            self._pending = event
            self._pending_outside = False
        return 0

    cdef int set_transfer(self, object report) except -1:
        with cython.critical_section(self):
            self._transfer = report
        return 0

    def _forget_pending(self, event):
        with cython.critical_section(self):
            if self._pending is event:
                self._pending = None
                self._pending_outside = False

    cdef int begin_use(self) except -1:
        # Until `end_use` the memory stays: whoever lets the GIL go while it touches memory stands between the two.
        if not self.exports.add():
            raise errors.UseAfterFree(self._id, self.address, what="the storage was closed")
        self.operations.add()
        return 0

    cdef void end_use(self) noexcept:
        self.operations.remove()
        self.exports.remove()

    cdef int begin_view(self) except -1:
        # The same for whoever has the address outside, and says by `end_view` when that is over.
        if not self.exports.add():
            raise errors.UseAfterFree(self._id, self.address, what="the storage was closed")
        return 0

    cdef void end_view(self) noexcept:
        self.exports.remove()

    cdef int begin_queued_use(self) except -1:
        # The same for work that a stream has yet to do: closing is not refused, and the memory stays until then.
        if not self.queued.add():
            raise errors.UseAfterFree(self._id, self.address, what="the storage was closed")
        return 0

    cdef int end_queued_use(self) except -1:
        self.queued.remove()
        if self.is_closed() and self.queued.close():
            self._give_back()
        return 0

    cdef int _give_back(self) except -1:
        with cython.critical_section(self):
            owner, self._owner = self._owner, None
        if type(owner) is DeviceBlock:
            (<DeviceBlock>owner)._exports.remove()
        elif self.accesses is not None:
            self.accesses.close()
        elif self._release is not None:
            self._release.let_go()
        return 0

    cdef uint64_t lend(self, bint readonly) except? 0:
        # Somebody outside gets the address, which this returns; `let_go` takes it back.
        self.check_reach("an export")
        self.begin_view()
        if self.accesses is None:
            return self.address
        try:
            return self.accesses.join(readonly)
        except BaseException:
            self.end_view()
            raise

    cdef void let_go(self, bint readonly) noexcept:
        if self.accesses is not None:
            self.accesses.leave(readonly)
        self.end_view()

    cdef Ending ending(self):
        if self.accesses is not None:
            return self.accesses
        if self._release is None:
            self._release = _release_of(self._owner)
        return self._release

    cdef int hold_block(self, DeviceBlock block, PythonKindMemory* memory) except -1:
        cdef Ending end = self.ending()
        end.attach(block, memory)
        if self.address != 0 and not is_handle(block.raw.address):
            if self.accesses is not None:
                self.accesses._shift = block.raw.address - self.address
            self.address = block.raw.address
        return 0

    cdef int check_address(self) except -1:
        if self.address == 0 and self.capacity > 0:
            raise errors.NotSupported(f"an address of {self.memory} memory that is not mapped; use .map(), or a buffer "
                                      "or array of it")
        return 0

    cdef int check_reach(self, str what) except -1:
        if self.untouchable:
            raise errors.Untouchable(what, str(self.space))
        return 0

    cdef int check_open(self) except -1:
        if self.is_closed():
            raise errors.UseAfterFree(self._id, self.address, what="the storage was closed")
        return 0

    cdef int settle(self, object timeout=None) except -1:
        cdef Event event = self.pending()
        if event is not None:
            event.synchronize(timeout)
            self._forget_pending(event)
            if self._transfer is not None and self._transfer.unheard:
                raise self._transfer.error
        return 0


cdef int _keep_block(DeviceBlock block) except -1:
    # As long as a storage needs it, nobody can give the block back by hand.
    if not block._exports.add():
        raise errors.UseAfterFree(block.raw.generation, block.raw.address, what="the block is being given back")
    return 0


cdef Storage new_storage(uint64_t address, uint64_t nbytes, object owner, object space, object memory, Driver driver,
                         int32_t device_type, int32_t device_id, bint host, bint readonly):
    cdef Storage made = Storage.__new__(Storage)
    made._construction.begin()
    made.address = address
    made.capacity = nbytes
    made._id = next_storage_id()
    if type(owner) is DeviceBlock:
        _keep_block(<DeviceBlock>owner)
    made._owner = owner
    made.space = space
    made.memory = memory
    made._reason = ""
    made.driver = driver
    made.device_type = device_type
    made.device_id = device_id
    made.host = host
    made._readonly = readonly
    return made


cdef Storage new_bracketed_storage(uint64_t address, uint64_t nbytes, object owner, object space, object memory,
                                   Driver driver, bint readonly, uint64_t id):
    cdef Storage made = Storage.__new__(Storage)
    made._construction.begin()
    made.address = address
    made.capacity = nbytes
    made._id = id
    made._owner = owner
    made.accesses = bracketed_by(owner)
    made.space = space
    made.memory = memory
    made._reason = ""
    made.driver = driver
    made.device_type = 1
    made.host = True
    made.direct_ = True  # all processors see the same bytes
    made._readonly = readonly
    return made
