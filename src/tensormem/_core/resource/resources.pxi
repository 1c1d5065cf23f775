"""Owns: `DeviceBlock`, and `DeviceMemoryResource`, the base of everything that hands out blocks.

A block keeps its resource alive and is given back, on the stream it was allocated on, when it is dropped.
Must not know: which resources there are.
"""
import weakref
from contextvars import ContextVar

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint64_t
from libcpp.memory cimport make_shared, static_pointer_cast
from libcpp.string_view cimport string_view
from libcpp.utility cimport move

from tensormem._core.construction cimport Construction, begin_construction, only_the_core_makes
from tensormem._core.base cimport (
    Driver,
    Stream,
    alignment_of,
    borrow_stream,
    new_stream_id,
    refuse,
    report_unraisable,
    size_of,
    stream_id,
    text_of_tag,
)
from tensormem._core.failures cimport check
from tensormem._core.hooks cimport python_failure, resource_hooks
from tensormem._core.native cimport (
    Access as NativeAccess,
    AllocRequest,
    Block,
    ForeignResourceAdaptor,
    MakerScope,
    Resource,
    ResourcePtr,
    SpaceKind,
    Stats,
    Status,
    StreamId,
    TagId,
    count_uses,
    intern_tag,
    is_handle,
    is_used,
    kStatsFieldCount,
    kStatsFields,
    maker_in_force,
    stats_value,
    text_of,
)
from tensormem._core.native_order cimport any_stream_holds, stream_holds
from tensormem._core.native_trace cimport rename_reporter, report_tag, report_use

from enum import StrEnum
from typing import NewType

from tensormem import errors
from tensormem.construction import constructed_once

# A number that no other allocation of this process has.
Generation = NewType("Generation", int)
# What an allocation is called. The same text is one tag, whoever uses it.
AllocTag = NewType("AllocTag", str)
# Compiled code has no frame to learn this from.
Generation.__module__ = AllocTag.__module__ = __name__


class BlockState(StrEnum):
    """Where a block is in its life; plain text is as good.

    >>> import tensormem as tm
    >>> block = tm.mr.HostMemoryResource().allocate(64)
    >>> block.state is tm.mr.BlockState.LIVE, block.state == "live"
    (True, True)
    """

    LIVE = "live"  # handed out
    RETIRED = "retired"  # given back; streams that use it have not passed
    QUARANTINED = "quarantined"  # given back; kept from reuse so that late writes are seen
    FREED = "freed"  # gone

    def __repr__(self):
        return repr(self.value)


class Access(StrEnum):
    """How work uses a block; plain text is as good.

    >>> import tensormem as tm
    >>> mr = tm.mr.HostMemoryResource()
    >>> block = mr.allocate(64)
    >>> mr.prepare_block_use(block, None, tm.mr.Access.READ)
    >>> mr.finish_block_use(block, None, "read")
    """

    READ = "read"
    WRITE = "write"
    READ_WRITE = "read_write"

    def __repr__(self):
        return repr(self.value)


_STATES = tuple(BlockState)  # in the order of the native ones
_ACCESSES = {access: number for number, access in enumerate(Access, 1)}  # by the native numbers


@cython.final
cdef class BlockId:
    """The identity of a block: a value that outlives it and is never given to another. `DeviceBlock.id` gives it.

    The calls that order and record uses take it in place of the block, and tell when the block is gone.

    >>> import tensormem as tm
    >>> mr = tm.mr.HostMemoryResource()
    >>> block = mr.allocate(64)
    >>> name = block.id
    >>> mr.record_block_use(name, None)
    >>> del block
    >>> mr.record_block_use(name, None)
    Traceback (most recent call last):
    ...
    tensormem.errors.UseAfterFree: ...
    """

    @property
    def ptr(self):
        """The address of the first byte."""
        return self.raw.address

    @property
    def generation(self):
        """A number that no other allocation of this process has."""
        return self.raw.generation

    @property
    def alloc_stream(self):
        """The id of the stream it was allocated on."""
        return new_stream_id(self.driver, self.raw.stream)

    @property
    def device_ordinal(self):
        """The device it lives on."""
        return self.device

    def __eq__(self, other):
        if type(other) is not BlockId:
            return NotImplemented
        return self.raw.generation == (<BlockId>other).raw.generation

    def __lt__(self, other):
        if type(other) is not BlockId:
            return NotImplemented
        return self.raw.generation < (<BlockId>other).raw.generation

    def __le__(self, other):
        if type(other) is not BlockId:
            return NotImplemented
        return self.raw.generation <= (<BlockId>other).raw.generation

    def __gt__(self, other):
        if type(other) is not BlockId:
            return NotImplemented
        return self.raw.generation > (<BlockId>other).raw.generation

    def __ge__(self, other):
        if type(other) is not BlockId:
            return NotImplemented
        return self.raw.generation >= (<BlockId>other).raw.generation

    def __hash__(self):
        return hash(self.raw.generation)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("a block id names memory of this process and cannot be pickled")

    def __repr__(self):
        return (f"<BlockId {self.raw.address:#x}, generation {self.raw.generation}, allocated on stream "
                f"{self.raw.stream} of {self.driver.name}:{self.device}>")


only_the_core_makes(BlockId, b"block ids come from DeviceBlock.id")


@cython.final
@cython.freelist(256)
@cython.no_gc_clear
cdef class DeviceBlock:
    """One outstanding allocation. Made by a resource; dropped, it goes back on the stream it was allocated on.

    Where the CPU can touch it, it is a writable buffer. Whoever has a view of it keeps it: it lives on when it is
    dropped, and `deallocate` raises `StillExported`.

    >>> import tensormem as tm
    >>> mr = tm.mr.HostMemoryResource()
    >>> block = mr.allocate(1024)
    >>> block.nbytes, block.state
    (1024, 'live')
    >>> with memoryview(block) as view:
    ...     view[:3] = b"abc"
    ...     block.export_count
    1
    >>> mr.deallocate(block)
    >>> block.state
    'freed'
    """

    def __init__(self):
        raise TypeError("blocks come from a resource's allocate()")

    def __dealloc__(self):
        cdef NativeState end
        cdef Status status
        if not self._owned:
            return
        if self._mr._in_python and not self._offered:
            _give_back_in_python(self._mr, self.raw)
        else:
            # Nobody is left to tell: a block that cannot be given back stays counted by its resource. A stream of another
            # library may turn out to be gone only now.
            status = self._mr.target.deallocate(self.raw, _own_stream(self), &end)
            if not status.ok() and self.raw.stream != 0 and _own_stream(self) == 0:
                self._mr.target.deallocate(self.raw, 0, &end)

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
        """What the address is a multiple of: what was asked for, or more."""
        return 1 << self.raw.alignment_log2

    @property
    def generation(self):
        """A number that no other allocation of this process has."""
        return self.raw.generation

    @property
    def alloc_stream(self):
        """The id of the stream it was allocated on."""
        return new_stream_id(self._resource().driver, self.raw.stream)

    @property
    def device_ordinal(self):
        """The device it lives on."""
        return self._resource().native.device()

    @property
    def tag(self):
        """What the allocation was called; "untagged" if nothing."""
        return text_of_tag(self.raw.tag)

    @property
    def state(self):
        """A `BlockState`: "live", "retired" (given back, its stream has not passed), "quarantined" or "freed"."""
        return _STATES[<uint8_t>self._resource().target.state_of(self.raw)]

    @property
    def id(self):
        """Its identity, as a value."""
        cdef DeviceMemoryResource mr = self._resource()
        cdef BlockId made = BlockId.__new__(BlockId)
        made.raw = self.raw
        made.resource = mr.native.id()
        made.driver = mr.driver
        made.device = mr.native.device()
        return made

    @property
    def mr(self):
        """The resource that handed it out."""
        return self._resource()

    @property
    def export_count(self):
        """How many views of it are out: memoryviews, arrays, buffers of other libraries."""
        return max(0, self._exports.count())

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if not self._exports.add():
            raise errors.UseAfterFree(self.raw.generation, self.raw.address, what="the block is being given back")
        try:
            self._check_touchable()
            PyBuffer_FillInfo(buffer, self, <void*>self.raw.address, <Py_ssize_t>self.raw.nbytes, False, flags)
        except BaseException:
            self._exports.remove()
            raise

    def __releasebuffer__(self, Py_buffer* buffer):
        self._exports.remove()

    def __bytes__(self):
        # Without this, bytes() would take the address for a length.
        with memoryview(self) as view:
            return view.tobytes()

    def _check_touchable(self):
        if is_handle(self.raw.address) or not self._resource().is_host_accessible:
            raise errors.InvalidArgument(f"the CPU cannot touch {self!r}; copy it to main memory first")
        if self.state != "live":
            raise errors.UseAfterFree(self.raw.generation, self.raw.address, what=f"the block is {self.state}")

    cdef DeviceMemoryResource _resource(self):
        if self._mr is None:
            raise errors.InvalidArgument("this block was never made; blocks come from a resource's allocate()")
        return self._mr

    def __index__(self):
        return self.raw.address

    def _begin_use(self, Driver driver not None):
        # The address, for a call of `driver`; until `_end_use` the block cannot be given back.
        if not self._exports.add():
            raise errors.UseAfterFree(self.raw.generation, self.raw.address, what="the block is being given back")
        try:
            self._check_reach(driver)
        except BaseException:
            self._exports.remove()
            raise
        return self.raw.address

    def _check_reach(self, Driver driver):
        mr = self._resource()
        if self.state != "live":
            raise errors.UseAfterFree(self.raw.generation, self.raw.address, what=f"the block is {self.state}")
        if is_handle(self.raw.address) or not (mr.is_host_accessible or mr.is_device_accessible):
            raise errors.Untouchable("a call of a driver", space_of(mr))
        if driver.name == "host" and not mr.is_host_accessible:
            raise errors.InvalidArgument(f"the CPU cannot touch {self!r}; use the driver of its device")

    def _end_use(self):
        self._exports.remove()

    def __eq__(self, other):
        if type(other) is not DeviceBlock:
            return NotImplemented
        return self.raw.generation == (<DeviceBlock>other).raw.generation

    def __hash__(self):
        return hash(self.raw.generation)

    def __reduce__(self):
        raise TypeError("a block is memory of this process and cannot be pickled; send the tensor or the fd instead")

    def __repr__(self):
        if self._mr is None:
            return "<DeviceBlock (never made)>"
        return (f"<DeviceBlock {self.raw.address:#x}, {self.raw.nbytes} bytes, generation {self.raw.generation}, "
                f"{self.state}, tag {self.tag!r}>")


cdef object _allocate_in_python(DeviceMemoryResource mr, const AllocRequest& request):
    # The maker cannot be an argument of a method written in Python: whoever forwards to us finds it in force.
    global _makers_forwarded
    _makers_forwarded = True
    cdef MakerScope* scope = new MakerScope(request.maker)
    try:
        return mr.allocate(request.nbytes, borrow_stream(mr.driver, request.stream), alignment=request.alignment,
                           tag=None if request.tag == 0 else text_of_tag(request.tag))
    finally:
        del scope


cdef int _refuse_exported(DeviceBlock block) except -1:
    cdef uint64_t calls = count_uses(block.raw.address, block.raw.nbytes)
    if calls and block.state == "live":
        raise errors.StillExported(block.raw.generation, block.raw.address, calls,
                                   what="calls of other threads were given an address in it")
    if block.export_count == 0:
        raise errors.UseAfterFree(block.raw.generation, block.raw.address, what="another thread is giving it back")
    raise errors.StillExported(block.raw.generation, block.raw.address, block.export_count)


cdef inline StreamId _own_stream(DeviceBlock block) noexcept:
    # A stream that is destroyed has done its work: nothing is left to come after.
    if block.raw.stream == 0 or block._mr.native.driver().stream_is_valid(block.raw.stream):
        return block.raw.stream
    return 0


cdef class DeviceMemoryResource:
    """Hands out blocks and takes them back, in stream order. The base of every resource, for host memory too.

    Subclass it to write an adaptor in Python: override `allocate` and `deallocate`, and call them on `super()`, which
    forwards to the upstream. It can stand anywhere in a stack. (To make memory in Python, use `CallbackMemoryResource`.)

    >>> import tensormem as tm
    >>> class Counting(tm.mr.DeviceMemoryResource):
    ...     calls = 0
    ...     def allocate(self, nbytes, stream=None, *, alignment=None, tag=None):
    ...         self.calls += 1
    ...         return super().allocate(nbytes, stream, alignment=alignment, tag=tag)
    >>> counting = Counting(tm.mr.HostMemoryResource())
    >>> block = tm.mr.LimitingResourceAdaptor(counting, "1MiB").allocate(1024)
    >>> counting.calls
    1
    """

    def __init__(self, upstream_mr=None):
        begin_construction(self._construction, self)
        cdef DeviceMemoryResource upstream
        if type(self) is DeviceMemoryResource or upstream_mr is None:
            raise TypeError(f"{type(self).__name__} needs an upstream resource; the resources are in tensormem.mr")
        upstream = upstream_of(upstream_mr)
        context = weakref.ref(self)
        self.adopt(
            static_pointer_cast[Resource, ForeignResourceAdaptor](make_shared[ForeignResourceAdaptor](
                upstream._owner, resource_hooks(<PyObject*>context, _allocate, _deallocate, _reap))),
            upstream.driver,
            upstream,
        )
        self.target = upstream.native
        self._in_python = True
        self._held = {}

    def __del__(self):
        # In a cycle of garbage, its attributes are about to go: what is out goes straight to the upstream.
        self._in_python = False

    cdef adopt(self, ResourcePtr native, Driver driver, object upstream):
        self._owner = native
        self.native = native.get()
        self.target = self.native
        self.driver = driver
        self.upstream_mr = upstream
        cdef bytes name = type(self).__name__.encode()
        rename_reporter(self.native.id(), string_view(<const char*>name, len(name)))
        _live[self.native.id()] = self

    def allocate(self, nbytes, stream=None, *, alignment=None, tag=None):
        """A block of at least `nbytes`, ready for work queued on `stream` from now on.

        The address is a multiple of `alignment` (256 unless told). Raises `InvalidSize`, `InvalidAlignment`,
        `StreamMisuse`, `OutOfMemory`.
        """
        cdef AllocRequest request
        cdef DeviceBlock block
        self._request(&request, nbytes, stream, alignment, tag)
        block = self._take_native(request)
        if stream is not None and type(stream) is not Stream:
            block._stream = stream
        return block

    def deallocate(self, DeviceBlock block not None, stream=None):
        """Give a block back, after the work queued so far on `stream` (its own unless told) and after every other use.

        Raises `UseAfterFree` for a block given back before, `ForeignBlock` for another resource's, `StillExported` for
        one that an array or another view is over; nothing changes then.
        """
        cdef StreamId queue
        cdef NativeState end
        if block._mr is not self:
            self._refuse(block)
        queue = _own_stream(block) if stream is None else stream_id(stream, self.driver.native)
        if is_used(block.raw.address, block.raw.nbytes) or not block._exports.close():
            _refuse_exported(block)
        cdef Status status = give_back(self.target[0], block.raw, queue, &end, block._exports)
        if not status.ok() and stream is None and queue != 0 and _own_stream(block) == 0:
            # The library that made the stream has destroyed it, as its driver found out just now.
            if not block._exports.close():
                _refuse_exported(block)
            status = give_back(self.target[0], block.raw, 0, &end, block._exports)
        check(move(status))
        block._owned = False
        block._stream = None

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
        return self.target.bytes_outstanding()

    @property
    def counters(self):
        """Every counter of the resource that makes the blocks, by name."""
        cdef Stats stats
        cdef int field
        self._check_open()
        stats = self.target.stats()
        return {kStatsFields[field].name.decode(): stats_value(stats, field) for field in range(kStatsFieldCount)}

    def reap_pending(self):
        """Free every retired block whose stream is proven to have passed; keep the rest."""
        self._check_open()
        stream_holds().reap()
        check(self.target.reap_pending())

    @property
    def supports_block_use_tracking(self):
        """Whether `prepare_block_use` and its kin work; where they do not, they raise `StreamMisuse`."""
        self._check_open()
        return self.target.supports_block_use_tracking()

    def prepare_block_use(self, block, stream, access):
        """Let `stream` wait for what a read or write of the block, or of the one that a `BlockId` names, must follow."""
        cdef const Block* raw = self._own(block)
        cdef StreamId queue = stream_id(stream, self.driver.native)
        cdef NativeAccess kind = <NativeAccess><int>_access(access)
        check(self.target.prepare_block_use(raw[0], queue, kind))

    def finish_block_use(self, block, stream, access):
        """Record that the work queued on `stream` so far read or wrote the block, or the one that a `BlockId` names."""
        cdef const Block* raw = self._own(block)
        cdef StreamId queue = stream_id(stream, self.driver.native)
        cdef NativeAccess kind = <NativeAccess><int>_access(access)
        check(self.target.finish_block_use(raw[0], queue, kind))
        report_use(self.target.id(), raw.address, raw.nbytes, raw.generation, queue, raw.tag, <uint8_t>kind)

    def record_block_use(self, block, stream):
        """Record a read on `stream` without having waited first: for work that was ordered by other means."""
        self.finish_block_use(block, stream, "read")

    def launch(self, stream=None):
        """A recorder of which blocks the work queued inside reads and writes; see `LaunchRecorder`."""
        cdef LaunchRecorder recorder
        if not self.supports_block_use_tracking:
            raise errors.StreamMisuse(stream_id(stream, self.driver.native),
                                      what=f"{self!r} does not track uses across streams")
        recorder = LaunchRecorder.__new__(LaunchRecorder)
        recorder._mr = self
        recorder._driver = self.driver
        recorder._stream = stream
        recorder._uses = {}
        return recorder

    @property
    def is_host_accessible(self):
        """Whether the CPU can touch the memory."""
        self._check_open()
        return self.native.space().host_reaches

    @property
    def is_device_accessible(self):
        """Whether a GPU can touch the memory."""
        self._check_open()
        return self.native.space().device_reaches

    @property
    def is_managed(self):
        """Whether the memory moves between host and GPU by itself."""
        self._check_open()
        return self.native.space().kind == SpaceKind.managed

    def describe(self):
        """One line about this resource alone, for pictures of a stack."""
        return type(self).__name__

    def __repr__(self):
        if self.driver is None:
            return f"<{type(self).__name__} (never initialised)>"
        return f"<{self.describe()} on {self.driver.name}:{self.native.device()}>"

    def __str__(self):
        lines, resource, depth = [], self, 0
        while resource is not None:
            lines.append("   " * (depth - 1) + "`- " * (depth > 0) + resource.describe())
            resource, depth = resource.upstream_mr, depth + 1
        return "\n".join(lines)

    def _repr_html_(self):
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def __reduce__(self):
        raise TypeError("a resource belongs to its process and cannot be pickled; build the same one on the other side")

    cdef int _check_open(self) except -1:
        if self.native is NULL:
            raise errors.InvalidArgument(f"{type(self).__name__} was never initialised; call super().__init__()")
        return 0

    cdef int _request(self, AllocRequest* request, object nbytes, object stream, object alignment,
                      object tag) except -1:
        if self.native is NULL:
            self._check_open()
        request.nbytes = size_of(nbytes)
        request.stream = stream_id(stream, self.driver.native)
        if alignment is not None:
            request.alignment = alignment_of(alignment)
        if tag is not None:
            request.tag = tag_id(tag)
        elif _scopes_used:
            request.tag = _current_tag.get()[0]
        if _makers_forwarded:
            request.maker = maker_in_force()
        return 0

    cdef DeviceBlock take(self, const AllocRequest& request):
        cdef DeviceBlock block
        if not self._in_python:
            return self._take_native(request)
        block = _allocate_in_python(self, request)
        return block

    cdef DeviceBlock _take_native(self, const AllocRequest& request):
        if any_stream_holds():
            stream_holds().reap(True)
        cdef DeviceBlock block = DeviceBlock.__new__(DeviceBlock)
        cdef Status status = self.target.allocate(request, &block.raw)
        if not status.ok():
            refuse(self, move(status), request.tag)
        return self._wrap(block)

    cdef DeviceBlock _wrap(self, DeviceBlock block):
        block._mr = self
        block._owned = True
        return block

    cdef const Block* _own(self, object block) except NULL:
        if type(block) is DeviceBlock:
            if (<DeviceBlock>block)._mr is not self:
                self._refuse(block)
            return &(<DeviceBlock>block).raw
        if type(block) is not BlockId:
            raise TypeError(f"a block is a DeviceBlock or its BlockId, not {type(block).__name__}")
        self._check_open()
        if (<BlockId>block).resource != self.native.id():
            raise errors.ForeignBlock((<BlockId>block).raw.generation, (<BlockId>block).raw.address,
                                      what=f"{block!r} was handed out by another resource than {self!r}")
        return &(<BlockId>block).raw

    def _refuse(self, DeviceBlock block):
        self._check_open()
        raise errors.ForeignBlock(block.raw.generation, block.raw.address,
                                  what=f"{block!r} was handed out by {block._mr!r}, not by {self!r}")


# Every resource that Python holds, by the number it has in traces.
_live = weakref.WeakValueDictionary()


def live_resources():
    """Every resource of this process that Python holds: the number it has in traces, and the resource."""
    # The references are listed in one step, so that other threads may make resources meanwhile.
    found = [(reference.key, reference()) for reference in _live.valuerefs()]
    return sorted(((number, resource) for number, resource in found if resource is not None), key=lambda each: each[0])


def space_of(DeviceMemoryResource resource not None):
    """The space that its memory is in, as text: "main", "gpu:1"."""
    resource._check_open()
    return text_of(resource.native.space()).decode()


cdef DeviceMemoryResource upstream_of(object upstream):
    if not isinstance(upstream, DeviceMemoryResource):
        raise errors.InvalidArgument(f"an upstream is a memory resource, not {type(upstream).__name__}")
    (<DeviceMemoryResource>upstream)._check_open()
    return upstream


@cython.final
cdef class LaunchRecorder:
    """Orders the work queued inside a `with` after what it must come after, and records what it used.

    >>> import tensormem as tm
    >>> mr = tm.mr.HostMemoryResource()
    >>> a, b = mr.allocate(64), mr.allocate(64)
    >>> with tm.Stream(tm.drivers.host()) as stream:
    ...     with mr.launch(stream) as use:
    ...         use.read(a)
    ...         use.write(b)
    ...         mr.driver.copy(b, a, 64, stream)
    ...     stream.synchronize()
    """

    cdef DeviceMemoryResource _mr
    cdef Driver _driver
    cdef object _stream
    cdef dict _uses  # by generation: the resource, the block or its id, and the access
    cdef Construction _entry  # a recorder is entered once
    cdef bint _recording

    def __enter__(self):
        if not self._entry.begin():
            raise errors.StreamMisuse(self._queue(), what="this launch recorder was used before; mr.launch() makes a new one")
        self._recording = True
        return self

    def read(self, block):
        """The work reads `block`, or the one that a `BlockId` of this resource names."""
        self._prepare(block, "read")

    def write(self, block):
        """The work writes `block`, or the one that a `BlockId` of this resource names."""
        self._prepare(block, "write")

    def read_write(self, block):
        """The work reads and writes `block`, or the one that a `BlockId` of this resource names."""
        self._prepare(block, "read_write")

    cdef _prepare(self, block, access):
        if not self._recording:
            raise errors.StreamMisuse(self._queue(), what="a launch recorder records inside its `with` alone: "
                                                          "with mr.launch(stream) as use: use.read(block)")
        mr = (<DeviceBlock>block)._resource() if type(block) is DeviceBlock else self._mr
        key = (<DeviceMemoryResource>mr)._own(block).generation
        _, _, before = self._uses.get(key, (None, None, None))
        if before is not None and before != access:
            access = "read_write"
        if before != access:
            mr.prepare_block_use(block, self._stream, access)
        self._uses[key] = mr, block, access

    cdef StreamId _queue(self) except? 0xFFFFFFFFFFFFFFFF:
        return stream_id(self._stream, self._driver.native)

    def __exit__(self, *exc_info):
        # Also after an exception: the work may have been queued before it.
        self._recording = False
        uses, self._uses = self._uses, {}
        for mr, block, access in uses.values():
            mr.finish_block_use(block, self._stream, access)
        self._mr = None  # it may outlive its scope; nothing can be recorded by it any more


only_the_core_makes(LaunchRecorder, b"launch recorders come from DeviceMemoryResource.launch")


# ---- Tags ----

_current_tag = ContextVar("tensormem.tag", default=(0, None))  # the tag, and the scope around it
cdef bint _scopes_used = False
cdef bint _makers_forwarded = False


@constructed_once
class tag:
    """Inside, allocations that are not tagged themselves get this tag, in this thread or asynchronous task.

    >>> import tensormem as tm
    >>> mr = tm.mr.HostMemoryResource()
    >>> with tm.tag("kv-cache"):
    ...     block = mr.allocate(64)
    >>> block.tag
    'kv-cache'
    """

    def __init__(self, text):
        self._id = tag_id(text)

    def __enter__(self):
        global _scopes_used
        _scopes_used = True
        _current_tag.set((self._id, _current_tag.get()))
        report_tag(True, self._id)
        return self

    def __exit__(self, *exc_info):
        around = _current_tag.get()[1]
        if around is None:
            raise errors.InvalidArgument("this tag is not in force here: it ends in the thread or task where it began")
        _current_tag.set(around)
        report_tag(False, self._id)

    def __reduce__(self):
        return tag, (text_of_tag(self._id),)


def current_tag():
    """The text of the tag in force in this thread or task; None if there is none."""
    cdef TagId tag = _current_tag.get()[0]
    return None if tag == 0 else text_of_tag(tag)


cdef TagId tag_id(object text) except? 0xFFFFFFFF:
    if not isinstance(text, str):
        raise errors.InvalidArgument(f"a tag is text, not {type(text).__name__}")
    cdef bytes encoded = text.encode()
    return intern_tag(string_view(<const char*>encoded, len(encoded)))


cdef TagId tag_or_current(object text) except? 0xFFFFFFFF:
    return tag_id(text) if text is not None else _current_tag.get()[0]


cdef int _access(object access) except 0:
    found = _ACCESSES.get(access)
    if found is None:
        raise errors.InvalidArgument(f"access is one of {', '.join(_ACCESSES)}, not {access!r}")
    return found


# ---- Resources written in Python, called by native code above them ----

cdef void _allocate(PyObject* held, const AllocRequest* request, Block* block, Status* status) noexcept with gil:
    cdef DeviceMemoryResource self
    try:
        self = _alive(<object>held)
        made = _allocate_in_python(self, request[0])
        _check_made(self, made, request)
        self._held[(<DeviceBlock>made).raw.generation] = made
        block[0] = (<DeviceBlock>made).raw
    except BaseException as error:
        status[0] = python_failure(<PyObject*>error, "a resource written in Python raised", request.nbytes)


cdef int _check_made(DeviceMemoryResource self, object made, const AllocRequest* request) except -1:
    # What stands above would cut it up or hand it on, and two owners would meet in it.
    cdef DeviceBlock block
    if type(made) is not DeviceBlock:
        raise TypeError(f"allocate of {type(self).__name__} must give a DeviceBlock, not {type(made).__name__}")
    block = made
    if block.state != "live" or block.raw.generation in self._held:
        raise ValueError(f"allocate of {type(self).__name__} gave {block!r}, which is not a live block of its own")
    if block.raw.nbytes < request.nbytes or block.raw.address % request.alignment:
        raise ValueError(f"allocate of {type(self).__name__} gave {block!r} where {request.nbytes} bytes at a "
                         f"multiple of {request.alignment} were asked for")
    return 0


cdef void _deallocate(PyObject* held, const Block* block, StreamId stream, Status* status) noexcept with gil:
    cdef DeviceMemoryResource self
    try:
        self = _alive(<object>held)
        kept = self._held.get(block.generation)
        if kept is None:
            raise errors.UseAfterFree(block.generation, block.address)
        self.deallocate(kept, borrow_stream(self.driver, stream))
        del self._held[block.generation]
    except BaseException as error:
        status[0] = python_failure(<PyObject*>error, "a resource written in Python raised", block.nbytes)


cdef void _reap(PyObject* held, Status* status) noexcept with gil:
    try:
        _alive(<object>held).reap_pending()
    except BaseException as error:
        status[0] = python_failure(<PyObject*>error, "a resource written in Python raised", 0)


def _alive(reference):
    resource = reference()
    if resource is None:
        raise errors.InternalError("a resource written in Python is gone while its stack is in use")
    return resource


cdef _give_back_in_python(DeviceMemoryResource mr, const Block& raw):
    # The dropped block cannot be passed on any more: a twin goes the way its owner would have sent it.
    cdef DeviceBlock twin = DeviceBlock.__new__(DeviceBlock)
    twin.raw = raw
    twin._offered = True
    mr._wrap(twin)
    try:
        mr.deallocate(twin)
    except BaseException as error:
        twin._owned = False
        report_unraisable(error, mr)
