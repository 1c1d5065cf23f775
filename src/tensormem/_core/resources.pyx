# cython: language_level=3, freethreading_compatible=True
"""Owns: `DeviceBlock`, and `DeviceMemoryResource`, the base of everything that hands out blocks.

A block keeps its resource alive and is given back, on the stream it was allocated on, when it is dropped.
Must not know: which resources there are.
"""
cimport cython
from libc.stdint cimport uint8_t, uint64_t
from libcpp.string_view cimport string_view

from tensormem._core.drivers cimport Driver
from tensormem._core.failures cimport check
from tensormem._core.native cimport (
    Access,
    AllocRequest,
    Block,
    BlockState,
    ResourcePtr,
    Stats,
    StreamId,
    TagId,
    intern_tag,
    kStatsFieldCount,
    kStatsFields,
    stats_value,
    tag_text,
)
from tensormem._core.sizes cimport size_of
from tensormem._core.streams cimport Stream, stream_id

from typing import NamedTuple

from tensormem import errors

_STATES = ("live", "retired", "quarantined", "freed")
_ACCESSES = {"read": 1, "write": 2, "read_write": 3}


class BlockId(NamedTuple):
    """The identity of a block: a value that outlives it and is never given to another."""

    ptr: int
    generation: int
    alloc_stream: int
    device_ordinal: int


@cython.final
@cython.freelist(256)
@cython.no_gc_clear
cdef class DeviceBlock:
    """One outstanding allocation. Made by a resource; dropped, it goes back on the stream it was allocated on.

    >>> import tensormem as tm
    >>> mr = tm.mr.HostMemoryResource()
    >>> block = mr.allocate(1024)
    >>> block.nbytes, block.state
    (1024, 'live')
    >>> mr.deallocate(block)
    >>> block.state
    'freed'
    """

    def __init__(self):
        raise TypeError("blocks come from a resource's allocate()")

    def __dealloc__(self):
        cdef BlockState end
        if self._owned:
            # Nobody is left to tell: a block that cannot be given back stays counted by its resource.
            self._mr.native.deallocate(self.raw, self.raw.stream, &end)

    @property
    def ptr(self):
        """The address of the first byte."""
        return self.raw.address

    @property
    def nbytes(self):
        """The size that was asked for."""
        return self.raw.nbytes

    @property
    def size(self):
        """The same as `nbytes`, as RMM calls it."""
        return self.raw.nbytes

    @property
    def alignment(self):
        """What the address is a multiple of, as asked for."""
        return 1 << self.raw.alignment_log2

    @property
    def generation(self):
        """A number that no other allocation of this process has."""
        return self.raw.generation

    @property
    def alloc_stream(self):
        """The id of the stream it was allocated on."""
        return self.raw.stream

    @property
    def device_ordinal(self):
        """The device it lives on."""
        return self._mr.native.device()

    @property
    def tag(self):
        """What the allocation was called; "untagged" if nothing."""
        cdef string_view text = tag_text(self.raw.tag)
        return text.data()[:text.size()].decode()

    @property
    def state(self):
        """"live", "retired" (given back, its stream has not passed yet), "quarantined" or "freed"."""
        return _STATES[<uint8_t>self._mr.native.state_of(self.raw)]

    @property
    def id(self):
        """Its identity, as a value."""
        return BlockId(self.raw.address, self.raw.generation, self.raw.stream, self._mr.native.device())

    @property
    def mr(self):
        """The resource that handed it out."""
        return self._mr

    def __index__(self):
        return self.raw.address

    def __eq__(self, other):
        if type(other) is not DeviceBlock:
            return NotImplemented
        return self.raw.generation == (<DeviceBlock>other).raw.generation

    def __hash__(self):
        return hash(self.raw.generation)

    def __reduce__(self):
        raise TypeError("a block is memory of this process and cannot be pickled; send the tensor or the fd instead")

    def __repr__(self):
        return (f"<DeviceBlock {self.raw.address:#x}, {self.raw.nbytes} bytes, generation {self.raw.generation}, "
                f"{self.state}, tag {self.tag!r}>")


cdef class DeviceMemoryResource:
    """Hands out blocks and takes them back, in stream order. The base of every resource, for host memory too.

    Use one of the resources of `tensormem.mr`.
    """

    def __init__(self):
        raise TypeError(f"{type(self).__name__} is a base class; use a resource of tensormem.mr")

    cdef adopt(self, ResourcePtr native, Driver driver, object upstream):
        self._owner = native
        self.native = native.get()
        self.driver = driver
        self.upstream_mr = upstream

    def allocate(self, nbytes, stream=None, *, alignment=None, tag=None):
        """A block of at least `nbytes`, ready for work queued on `stream` from now on.

        The address is a multiple of `alignment` (256 unless told). Raises `InvalidSize`, `InvalidAlignment`,
        `StreamMisuse`, `OutOfMemory`.
        """
        cdef AllocRequest request
        cdef DeviceBlock block
        self._check_open()
        request.nbytes = size_of(nbytes)
        request.stream = stream_id(stream, self.driver.native)
        if alignment is not None:
            request.alignment = _alignment(alignment)
        if tag is not None:
            request.tag = _tag(tag)
        block = DeviceBlock.__new__(DeviceBlock)
        check(self.native.allocate(request, &block.raw))
        block._mr = self
        block._owned = True
        return block

    def deallocate(self, DeviceBlock block not None, stream=None):
        """Give a block back, after the work queued so far on `stream` (its own unless told) and after every other use.

        Raises `UseAfterFree` for a block given back before, `ForeignBlock` for another resource's; nothing changes then.
        """
        cdef StreamId queue
        cdef BlockState end
        self._check_open()
        if block._mr is not self:
            raise errors.ForeignBlock(block.raw.generation, block.raw.address,
                                      what=f"{block!r} was handed out by {block._mr!r}, not by {self!r}")
        queue = block.raw.stream if stream is None else stream_id(stream, self.driver.native)
        check(self.native.deallocate(block.raw, queue, &end))
        block._owned = False

    @property
    def device_ordinal(self):
        """The device whose memory this is."""
        self._check_open()
        return self.native.device()

    @property
    def device_id(self):
        """The same as `device_ordinal`, as cuda.core calls it."""
        return self.device_ordinal

    @property
    def bytes_outstanding(self):
        """Bytes handed out and not yet free: live blocks, and retired ones whose streams have not passed."""
        self._check_open()
        return self.native.bytes_outstanding()

    @property
    def counters(self):
        """Every counter of this resource, by name."""
        cdef Stats stats
        cdef int field
        self._check_open()
        stats = self.native.stats()
        return {kStatsFields[field].name.decode(): stats_value(stats, field) for field in range(kStatsFieldCount)}

    def reap_pending(self):
        """Free every retired block whose stream is proven to have passed; keep the rest."""
        self._check_open()
        check(self.native.reap_pending())

    @property
    def supports_block_use_tracking(self):
        """Whether `prepare_block_use` and its kin work; where they do not, they raise `StreamMisuse`."""
        self._check_open()
        return self.native.supports_block_use_tracking()

    def prepare_block_use(self, DeviceBlock block not None, stream, access):
        """Let `stream` wait for what a read or write of the block must come after."""
        cdef StreamId queue = self._use(block, stream)
        cdef Access kind = <Access><int>_access(access)
        check(self.native.prepare_block_use(block.raw, queue, kind))

    def finish_block_use(self, DeviceBlock block not None, stream, access):
        """Record that the work queued on `stream` so far read or wrote the block."""
        cdef StreamId queue = self._use(block, stream)
        cdef Access kind = <Access><int>_access(access)
        check(self.native.finish_block_use(block.raw, queue, kind))

    def record_block_use(self, DeviceBlock block not None, stream):
        """Record a read on `stream` without having waited first: for work that was ordered by other means."""
        self.finish_block_use(block, stream, "read")

    @property
    def is_host_accessible(self):
        """Whether the CPU can touch the memory."""
        return True

    @property
    def is_device_accessible(self):
        """Whether a GPU can touch the memory."""
        return False

    @property
    def is_managed(self):
        """Whether the memory moves between host and GPU by itself."""
        return False

    def __repr__(self):
        return f"<{type(self).__name__} on {'nothing' if self.driver is None else self.driver.name}>"

    def __reduce__(self):
        raise TypeError("a resource belongs to its process and cannot be pickled; build the same one on the other side")

    cdef inline int _check_open(self) except -1:
        if self.native is NULL:
            raise errors.InvalidArgument(f"{type(self).__name__} was never initialised; call super().__init__()")
        return 0

    cdef StreamId _use(self, DeviceBlock block, object stream) except? 0xFFFFFFFFFFFFFFFF:
        self._check_open()
        if block._mr is not self:
            raise errors.ForeignBlock(block.raw.generation, block.raw.address,
                                      what=f"{block!r} was handed out by {block._mr!r}, not by {self!r}")
        return stream_id(stream, self.driver.native)


cdef uint64_t _alignment(object alignment) except 0:
    cdef uint64_t value
    try:
        value = size_of(alignment)
    except errors.InvalidSize:
        raise errors.InvalidAlignment(alignment) from None
    if value == 0:
        raise errors.InvalidAlignment(alignment)
    return value


cdef TagId _tag(object tag) except? 0xFFFFFFFF:
    if not isinstance(tag, str):
        raise errors.InvalidArgument(f"a tag is text, not {type(tag).__name__}")
    cdef bytes encoded = tag.encode()
    return intern_tag(string_view(<const char*>encoded, len(encoded)))


cdef int _access(object access) except 0:
    found = _ACCESSES.get(access)
    if found is None:
        raise errors.InvalidArgument(f"access is one of {', '.join(_ACCESSES)}, not {access!r}")
    return found
