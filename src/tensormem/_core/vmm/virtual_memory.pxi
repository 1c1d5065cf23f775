"""Owns: virtual memory as Python sees it: address ranges, physical memory, the mappings between them, and the manager
that makes them. The rules and the transactions are native; here their objects get owners.

Must not know: pools, tensors, how descriptors travel.
"""
import enum

cimport cython
from cython.operator cimport dereference as deref, preincrement
from libc.stdint cimport int32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.map cimport map as cmap
from libcpp.memory cimport make_shared, shared_ptr, static_pointer_cast
from libcpp.utility cimport move, pair
from libcpp.vector cimport vector

from tensormem._core.construction cimport begin_construction, only_the_core_makes
from tensormem._core.base cimport Driver, address_of, alignment_of, ordinal_on, place_name, refuse, size_of
from tensormem._core.failures cimport check
from tensormem._core.resource cimport tag_or_current, tallied_limits
from tensormem._core.native cimport AccessFlags as NativeAccess
from tensormem._core.native cimport Granularity, PhysicalOptions, Status, TagId, is_used
from tensormem._core.native_pool cimport BudgetPtr
from tensormem._core.native_trace cimport trace_drop_stack, trace_hold_stack
from tensormem._core.native_vmm cimport MapRequest, VmmCounters
from tensormem._core.native_vmm cimport Mapping as NativeMapping
from tensormem._core.native_vmm cimport VirtualMemoryManager as NativeManager

from tensormem import errors
from tensormem.units import format_size

_NO_PLACEMENT = 0xFFFFFFFFFFFFFFFF


class AccessFlags(enum.StrEnum):
    """What a device may do with mapped memory. Plain text does as well.

    >>> from tensormem.vmm import AccessFlags
    >>> AccessFlags("read") is AccessFlags.READ, AccessFlags.READ_WRITE == "read_write"
    (True, True)
    """

    NONE = "none"
    READ = "read"
    READ_WRITE = "read_write"


cdef dict _NUMBERS = {AccessFlags.NONE: 0, AccessFlags.READ: 1, AccessFlags.READ_WRITE: 3}
cdef dict _FLAGS = {number: flags for flags, number in _NUMBERS.items()}


cdef NativeAccess _access(object access) except *:
    number = _NUMBERS.get(access) if isinstance(access, str) else None
    if number is None:
        raise errors.InvalidArgument(f"access is one of {', '.join(_NUMBERS)}, not {access!r:.80}")
    return <NativeAccess><int>number


@cython.final
cdef class PhysicalAllocation:
    """Pages without an address. Made by `VirtualMemoryManager.alloc_physical`; may be mapped at several addresses.

    Leaving its `with` block, `close()`, or dropping it gives up the handle; the pages go when their last mapping does.

    >>> import tensormem as tm
    >>> with tm.VirtualMemoryManager() as vmm:
    ...     pages = vmm.alloc_physical("4MiB")
    ...     pages.size, pages.mapping_count
    (4194304, 0)
    """

    def __dealloc__(self):
        with nogil:
            self.native.reset()

    @property
    def handle(self):
        """The driver's handle. A number to look at: it stays the allocation's own."""
        return self.native.get().handle()

    @property
    def size(self):
        """In bytes."""
        return self.native.get().size()

    @property
    def device(self):
        """The ordinal of the device that the pages are on."""
        return self.native.get().info().device

    @property
    def exportable(self):
        """Whether `export_handle` can hand it to another process."""
        return self.native.get().info().exportable

    @property
    def imported(self):
        """Whether another process made it."""
        return self.native.get().info().imported

    @property
    def huge_pages(self):
        """Whether the system really backs it with huge pages."""
        return self.native.get().info().huge_pages

    @property
    def mapping_count(self):
        """At how many places it is mapped; a mapping that was cut in two counts twice."""
        return self.native.get().mapping_count()

    @property
    def closed(self):
        """Whether it was freed or closed: it cannot be mapped any more."""
        return self.native.get().is_closed()

    def close(self):
        """Give up the handle; mappings keep their pages until they are unmapped. Once or many times."""
        with nogil:
            self.native.get().close()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()

    def __eq__(self, other):
        if not isinstance(other, PhysicalAllocation):
            return NotImplemented
        return self.native.get() is (<PhysicalAllocation>other).native.get()

    def __hash__(self):
        return hash(<uint64_t>self.native.get())

    def __str__(self):
        return f"PhysAlloc[handle={self.handle:#018x}, {self.size} bytes, dev={self.device}]"

    def __repr__(self):
        state = "freed" if self.closed and not self.mapping_count else f"mapped {self.mapping_count} times"
        return f"<PhysicalAllocation {self.handle} of {format_size(self.size)} on {self.manager.where}, {state}>"

    def __reduce__(self):
        raise TypeError(
            "physical memory cannot be pickled: pass it to another process through multiprocessing, with "
            "tensormem.vmm.send_physical, or by the descriptor of export_handle"
        )


only_the_core_makes(PhysicalAllocation, b"physical memory comes from VirtualMemoryManager.alloc_physical or import_handle")


@cython.final
cdef class VirtualAddressRange:
    """Reserved addresses, which cost nothing until something is mapped there. Made by `VirtualMemoryManager.reserve`.

    Leaving its `with` block, `close()`, or dropping it unmaps everything and releases the addresses.

    >>> import tensormem as tm
    >>> with tm.VirtualMemoryManager() as vmm, vmm.reserve("64MiB") as va:
    ...     va.end - va.base, va.contains(va.base + 5), va.contains(va.end)
    (67108864, True, False)
    """

    def __dealloc__(self):
        with nogil:
            self.native.reset()

    @property
    def base(self):
        """The first address."""
        return self.native.get().base()

    @property
    def size(self):
        """In bytes."""
        return self.native.get().size()

    @property
    def alignment(self):
        """What the first address is a multiple of."""
        return self.native.get().alignment()

    @property
    def end(self):
        """The first address behind the range."""
        return self.native.get().base() + self.native.get().size()

    @property
    def released(self):
        """Whether the addresses were given back."""
        return self.native.get().is_released()

    def contains(self, address):
        """Whether the address is in the range."""
        return self.base <= address_of(address) < self.end

    def is_mapped(self, offset=0, size=None):
        """Whether every byte of the part (all of it, unless told) is mapped."""
        cdef uint64_t start = size_of(offset)
        cdef uint64_t nbytes = _rest(self, start) if size is None else size_of(size)
        return self.native.get().is_mapped(start, nbytes)

    def close(self):
        """Unmap everything and release the addresses. `StillHeld`, a `BufferError`, while a call of another thread uses
        them. Closing twice is harmless.
        """
        cdef Status status
        self.check_unused()
        with nogil:
            status = self.native.get().close()
        check(move(status))

    def __index__(self):
        return self.base

    def _begin_use(self, Driver driver not None):
        # The first address, for a call of `driver`; until `_end_use` nobody can unmap or release any of it.
        if driver.name == "host" and self.manager.driver.name != "host":
            raise errors.InvalidArgument(f"the CPU cannot touch {self!r}; use the driver of its device")
        if self.released or not self._uses.add():
            raise errors.UseAfterRelease(self.base, what="the addresses were released")
        self.manager._uses.add()
        return self.base

    def _end_use(self):
        self._uses.remove()
        self.manager._uses.remove()

    # Nobody was given it or, of the addresses from `start` on, an address of these `nbytes`: all of them if that is 0.
    cdef int check_unused(self, uint64_t start=0, uint64_t nbytes=0) except -1:
        if self._uses.count() > 0:
            raise errors.StillHeld(self.base, self._uses.count(), what="calls of other threads use the range")
        if is_used(self.base + start, nbytes or self.size):
            raise errors.StillHeld(self.base + start, 1, what="a call of another thread was given an address in the range")
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.close()

    def __str__(self):
        return f"VA[{self.base:#018x}..{self.end:#018x}, {self.size} bytes, align={self.alignment}]"

    def __repr__(self):
        state = "released" if self.released else f"{self.native.get().mappings().size()} mappings"
        return (
            f"<VirtualAddressRange {self.base:#x}..{self.end:#x}, {format_size(self.size)} on "
            f"{self.manager.where}, {state}>"
        )

    def __reduce__(self):
        raise TypeError("addresses belong to one process and cannot be pickled; share physical memory instead")


only_the_core_makes(VirtualAddressRange, b"address ranges come from VirtualMemoryManager.reserve")


cdef uint64_t _rest(VirtualAddressRange va, uint64_t offset):
    cdef uint64_t size = va.native.get().size()
    return size - offset if offset < size else 0


@cython.final
@cython.freelist(64)
cdef class Mapping:
    """The edge between addresses and pages: `size` bytes of `physical` at `offset` of `range`. Made by
    `VirtualMemoryManager.map`; the range owns it, so it may be dropped.

    >>> import tensormem as tm
    >>> with tm.VirtualMemoryManager() as vmm, vmm.reserve("4MiB") as va:
    ...     with vmm.map(va, vmm.alloc_physical("2MiB"), 0, access="read_write") as mapping:
    ...         mapping.is_live, mapping.address == va.base, mapping.access
    ...     mapping.is_live
    (True, True, <AccessFlags.READ_WRITE: 'read_write'>)
    False
    """

    @property
    def address(self):
        """Where its first byte is."""
        return self.range.base + self.offset

    @property
    def is_live(self):
        """Whether all of it is still mapped where it was mapped."""
        cdef cbool live
        with nogil:
            live = self.range.native.get().is_current(self.offset, self.size, self._serial).ok()
        return live

    @property
    def access(self):
        """What the manager's own device may do everywhere in it."""
        return self.range.manager.get_access(self.range, offset=self.offset, size=self.size)

    def unmap(self):
        """Take the pages from behind the addresses, which stay reserved. `NotMapped` if it is not live any more."""
        cdef Status status
        self.range.check_unused(self.offset, self.size)
        with nogil:
            status = self.range.native.get().unmap_serial(self.offset, self.size, self._serial)
        check(move(status))

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        cdef Status status
        self.range.check_unused(self.offset, self.size)
        with nogil:
            status = self.range.native.get().unmap_rest(self.offset, self.size, self._serial)
        check(move(status))

    def __eq__(self, other):
        cdef Mapping that
        if not isinstance(other, Mapping):
            return NotImplemented
        that = <Mapping>other
        return (self._serial, self.offset, self.size) == (that._serial, that.offset, that.size)

    def __hash__(self):
        return hash((self._serial, self.offset, self.size))

    def __repr__(self):
        state = "" if self.is_live else ", not mapped any more"
        return (
            f"<Mapping of {format_size(self.size)} at offset {self.offset:#x}, from {self.physical_offset:#x} of "
            f"physical memory {self.physical.handle}{state}>"
        )

    def __reduce__(self):
        raise TypeError("mappings belong to one process and cannot be pickled; share physical memory instead")


only_the_core_makes(Mapping, b"mappings come from VirtualMemoryManager.map")


cdef Mapping _mapping(VirtualAddressRange va, PhysicalAllocation physical, uint64_t offset, uint64_t size,
                      uint64_t physical_offset, uint64_t serial):
    cdef Mapping mapping = Mapping.__new__(Mapping)
    mapping.range = va
    mapping.physical = physical
    mapping.offset = offset
    mapping.size = size
    mapping.physical_offset = physical_offset
    mapping._serial = serial
    return mapping


cdef list _parts(object physicals):
    try:
        parts = list(physicals)
    except TypeError:
        raise errors.InvalidArgument(f"physical memory is needed, not {type(physicals).__name__}") from None
    if not parts:
        raise errors.InvalidArgument("there is nothing to map")
    return parts


cdef int32_t _descriptor(object fd) except? -1:
    number = fd.fileno() if hasattr(fd, "fileno") else fd
    if not isinstance(number, int) or not -(2**31) <= number < 2**31:
        raise errors.InvalidArgument(f"a file descriptor is needed, not {fd!r:.80}")
    return number


cdef class VirtualMemoryManager:
    """See `tensormem.VirtualMemoryManager`, which finds the driver by name."""

    def __init__(self, Driver driver not None, device=None):
        begin_construction(self._construction, self)
        check(NativeManager.open(driver.native[0], driver._device(device), &self.native))
        self.driver = driver

    # --- Who it is ---

    @property
    def device(self):
        """The ordinal of the device that it makes memory on unless told."""
        self._check_open()
        return self.native.get().device()

    @property
    def where(self):
        """The device by name: "host", "cuda:0", "rocm:1"."""
        return place_name(self.driver, 0 if self.native.get() is NULL else self.native.get().device())

    def granularity(self, device=None):
        """(minimum, recommended): what sizes and offsets are multiples of, and what gives the fastest pages."""
        cdef Granularity granularity
        check(self.driver.native.granularity(self._device(device), &granularity))
        return granularity.minimum, granularity.recommended

    @property
    def whole_handles(self):
        """Whether physical memory is mapped whole and from 0, and unmapped whole, as GPUs do it."""
        self._check_open()
        return self.native.get().granularity().whole_handles

    def memory_info(self, device=None):
        """What the device has, and what this manager holds: a dict of bytes and counts."""
        free, total = self.driver.memory_info(self._device(device))
        return {"free_bytes": free, "total_bytes": total, **self._held()}

    cdef dict _held(self):
        cdef const VmmCounters* held = &self.native.get().counters()
        return {
            "reserved_bytes": held.reserved_bytes.load(),
            "physical_bytes": held.physical_bytes.load(),
            "mapped_bytes": held.mapped_bytes.load(),
            "ranges": held.ranges.load(),
            "physicals": held.physicals.load(),
            "mappings": held.mappings.load(),
        }

    # --- Addresses ---

    def reserve(self, size, alignment=None):
        """Addresses without memory. By default aligned to huge pages if the size is, otherwise to the granularity."""
        cdef VirtualAddressRange va = VirtualAddressRange.__new__(VirtualAddressRange)
        cdef uint64_t nbytes = size_of(size)
        cdef uint64_t boundary
        cdef Status status
        self._check_open()
        if alignment is None:
            boundary = self.native.get().granularity().recommended
            if nbytes % boundary:
                boundary = self.native.get().granularity().minimum
        else:
            boundary = alignment_of(alignment)
        with nogil:
            status = self.native.get().reserve(nbytes, boundary, &va.native)
        check(move(status))
        va.manager = self
        return va

    def release(self, va):
        """Give the addresses back. `StillMapped` while anything is mapped there."""
        cdef VirtualAddressRange range_ = self._own_range(va)
        cdef Status status
        range_.check_unused()
        with nogil:
            status = range_.native.get().release()
        check(move(status))

    # --- Physical memory ---

    def alloc_physical(self, size, device=None, *, bint exportable=False, bint huge_pages=True, near=None):
        """Pages without an address, committed now. `exportable` ones can go to another process. `near` is the address
        where they will be mapped, if that is known: neighbours then cost the system one memory area, not two.

        Limits that are in force are charged until the pages are gone: freed, or closed and unmapped.
        """
        cdef uint64_t nbytes = size_of(size)
        cdef PhysicalAllocation physical
        cdef PhysicalOptions options
        cdef int32_t ordinal = self._device(device)
        cdef TagId tag = tag_or_current(None)
        cdef shared_ptr[PageTally] tally
        cdef BudgetPtr budget
        cdef Status status
        options.exportable = exportable
        options.huge_pages = huge_pages
        options.placement = address_of(_NO_PLACEMENT if near is None else near)
        self._check_open()
        if nbytes == 0 or nbytes % self.native.get().granularity().minimum:
            return self.make_pages(nbytes, ordinal, options, tag)  # which refuses it
        tally = self._tally(ordinal)
        budget = tallied_limits(tally.get().budget(), self.driver, ordinal)
        with nogil:
            status = budget.get().claim(nbytes)
        if not status.ok():
            refuse(self, move(status), tag)
        trace_hold_stack()
        try:
            physical = self.make_pages(nbytes, ordinal, options, tag)
            physical.native.get().keep_charge(static_pointer_cast[void, PageCharge](
                make_shared[PageCharge](tally, budget, physical.native.get().handle(), nbytes, tag)))
        except BaseException:
            budget.get().give_back(nbytes)
            raise
        finally:
            trace_drop_stack()
        return physical

    cdef PhysicalAllocation make_pages(self, uint64_t nbytes, int32_t ordinal, const PhysicalOptions& options, TagId tag):
        cdef PhysicalAllocation physical = PhysicalAllocation.__new__(PhysicalAllocation)
        cdef Status status
        with nogil:
            status = self.native.get().alloc_physical(nbytes, ordinal, options, &physical.native)
        if not status.ok():
            refuse(self, move(status), tag)
        physical.manager = self
        return physical

    cdef shared_ptr[PageTally] _tally(self, int32_t ordinal) except *:
        cdef cbool first = self._tallies.empty()
        cdef shared_ptr[PageTally] found = self._tallies[ordinal]
        if found.get() is NULL:
            found = make_shared[PageTally](self.driver.native[0], ordinal)
            self._tallies[ordinal] = found
        if first:
            # The list of pools stands above this module.
            from tensormem.pools.living import remember

            remember(self)
        return found

    def _charged_bytes(self):
        # What `alloc_physical` made and is not gone, by the ordinal of its device.
        return {each.first: each.second.get().used() for each in self._tallies if each.second.get() is not NULL}

    def free_physical(self, physical):
        """Give the pages back. `StillMapped` while they are mapped anywhere."""
        cdef PhysicalAllocation pages = self._own_physical(physical)
        cdef Status status
        with nogil:
            status = pages.native.get().free()
        check(move(status))

    def export_handle(self, physical):
        """A file descriptor of the memory, for another process; the caller's to close."""
        cdef PhysicalAllocation pages = self._own_physical(physical)
        cdef int32_t fd = -1
        check(pages.native.get().export_fd(&fd))
        return fd

    def import_handle(self, fd, size=None, device=None):
        """The memory behind a descriptor that another process exported; the descriptor stays the caller's. Its type,
        its seals and, if given, its size are checked first. A descriptor of a GPU's memory does not tell its size: say it.
        """
        cdef PhysicalAllocation physical = PhysicalAllocation.__new__(PhysicalAllocation)
        cdef int32_t ordinal = self._device(device)
        cdef uint64_t expected = 0 if size is None else size_of(size)
        cdef int32_t descriptor = _descriptor(fd)
        cdef Status status
        if size is not None and expected == 0:
            raise errors.InvalidSize(size)
        with nogil:
            status = self.native.get().import_physical(descriptor, ordinal, expected, &physical.native)
        check(move(status))
        physical.manager = self
        return physical

    cdef PhysicalAllocation _adopt(self, PhysicalPtr native):
        cdef PhysicalAllocation physical = PhysicalAllocation.__new__(PhysicalAllocation)
        physical.native = native
        physical.manager = self
        return physical

    # --- Mappings ---

    def map(self, va, physical, offset=0, *, physical_offset=0, size=None, access=None, device=None):
        """Put pages behind addresses, and with `access` let the device (its own, unless told) use them at once.

        `physical` may also be a sequence of allocations, which are mapped one behind the other, all or none; the answer
        then is a list of mappings. Without `access` the addresses cannot be touched until `set_access` says so.
        """
        cdef VirtualAddressRange range_ = self._own_range(va)
        cdef NativeAccess flags = NativeAccess.none if access is None else _access(access)
        cdef int32_t ordinal = self._device(device)
        cdef uint64_t at = size_of(offset)
        cdef vector[MapRequest] requests
        cdef uint64_t serial = 0
        cdef Status status
        cdef list parts
        if isinstance(physical, PhysicalAllocation):
            at = self._ask(&requests, physical, at, size_of(physical_offset), size)
            with nogil:
                status = range_.native.get().map(requests, ordinal, flags, &serial)
            check(move(status))
            return _mapping(range_, physical, requests[0].offset, requests[0].size, requests[0].physical_offset, serial)
        parts = _parts(physical)
        if size is not None or size_of(physical_offset) != 0:
            raise errors.InvalidArgument("a sequence is mapped whole: `size` and `physical_offset` are for one")
        for part in parts:
            at = self._ask(&requests, part, at, 0, None)
        with nogil:
            status = range_.native.get().map(requests, ordinal, flags, &serial)
        check(move(status))
        return [
            _mapping(range_, parts[i], requests[i].offset, requests[i].size, 0, serial) for i in range(requests.size())
        ]

    cdef uint64_t _ask(self, vector[MapRequest]* requests, object physical, uint64_t at, uint64_t skip,
                       object size) except? 0xFFFFFFFFFFFFFFFF:
        # Adds what is to be mapped at `at`; gives the offset behind it.
        cdef PhysicalAllocation pages = self._own_physical(physical)
        cdef uint64_t whole = pages.native.get().size()
        cdef MapRequest request
        if size is None and skip >= whole:
            raise errors.InvalidOffset(skip, 0, whole, what="the physical memory ends before that")
        request.physical = pages.native
        request.offset = at
        request.physical_offset = skip
        request.size = whole - skip if size is None else size_of(size)
        requests.push_back(request)
        return at + request.size

    def unmap(self, va, offset=0, size=None):
        """Take the pages from behind these addresses (to the end of the range, unless told), which stay reserved."""
        cdef VirtualAddressRange range_ = self._own_range(va)
        cdef uint64_t start = size_of(offset)
        cdef uint64_t nbytes = _rest(range_, start) if size is None else size_of(size)
        cdef Status status
        range_.check_unused(start, nbytes)
        with nogil:
            status = range_.native.get().unmap(start, nbytes)
        check(move(status))

    def move(self, Mapping mapping not None, new_offset, *, to=None):
        """The same pages with the same access at another offset of its range, or of the range `to`. Nothing is copied;
        other mappings of the pages stay where they are. The new mapping.
        """
        cdef VirtualAddressRange source = self._own_range(mapping.range)
        cdef VirtualAddressRange target = source if to is None else self._own_range(to)
        cdef uint64_t at = size_of(new_offset)
        cdef uint64_t serial = 0
        cdef Status status
        source.check_unused(mapping.offset, mapping.size)
        with nogil:
            status = source.native.get().move(mapping.offset, mapping.size, mapping._serial, target.native.get()[0], at,
                                              &serial)
        check(move(status))
        return _mapping(target, mapping.physical, at, mapping.size, mapping.physical_offset, serial)

    def mappings(self, va):
        """What is mapped in the range, in the order of the addresses."""
        cdef VirtualAddressRange range_ = self._own_range(va)
        cdef cmap[uint64_t, NativeMapping] found
        cdef cmap[uint64_t, NativeMapping].iterator at
        with nogil:
            found = range_.native.get().mappings()
        listed = []
        at = found.begin()
        while at != found.end():
            listed.append(_mapping(range_, self._adopt(deref(at).second.physical), deref(at).first,
                                   deref(at).second.size, deref(at).second.physical_offset, deref(at).second.serial))
            preincrement(at)
        return listed

    # --- Access ---

    def set_access(self, va, device, flags, *, offset=0, size=None):
        """Say what a device (None: its own) may do with the mapped part of a range: "none", "read", "read_write"."""
        cdef VirtualAddressRange range_ = self._own_range(va)
        cdef NativeAccess access = _access(flags)
        cdef int32_t ordinal = self._device(device)
        cdef uint64_t start = size_of(offset)
        cdef uint64_t nbytes = _rest(range_, start) if size is None else size_of(size)
        cdef Status status
        with nogil:
            status = range_.native.get().set_access(start, nbytes, ordinal, access)
        check(move(status))

    def get_access(self, va, device=None, *, offset=0, size=None):
        """What a device may do everywhere in the part."""
        cdef VirtualAddressRange range_ = self._own_range(va)
        cdef NativeAccess access = NativeAccess.none
        cdef int32_t ordinal = self._device(device)
        cdef uint64_t start = size_of(offset)
        cdef uint64_t nbytes = _rest(range_, start) if size is None else size_of(size)
        cdef Status status
        with nogil:
            status = range_.native.get().get_access(start, nbytes, ordinal, &access)
        check(move(status))
        return _FLAGS[<int>access]

    # --- The end ---

    @property
    def closed(self):
        """Whether it was closed: nothing can be made or changed with it any more."""
        return self.native.get() is NULL or self.native.get().is_closed()

    def close(self):
        """Unmap everything that it mapped, free its pages, release its addresses, in this order. Once or many times.

        Goes as far as it can: what the system refuses is raised at the end, and tried again by the next `close`.
        """
        cdef Status status
        if self.native.get() is NULL:
            return
        if self._uses.count() > 0:
            raise errors.StillHeld(0, self._uses.count(), what="calls of other threads use its ranges")
        with nogil:
            status = self.native.get().close()
        check(move(status))

    def __enter__(self):
        self._check_open()
        return self

    def __exit__(self, *failure):
        self.close()

    def __repr__(self):
        if self.closed:
            return f"<VirtualMemoryManager of {self.where}, closed>"
        held = self._held()
        return (
            f"<VirtualMemoryManager of {self.where}: {format_size(held['reserved_bytes'])} reserved, "
            f"{format_size(held['physical_bytes'])} physical, {format_size(held['mapped_bytes'])} mapped>"
        )

    # --- Checks ---

    cdef int _check_open(self) except -1:
        if self.native.get() is NULL:
            raise errors.InvalidArgument("the manager was not initialised")
        if self.native.get().is_closed():
            raise errors.UseAfterRelease(0, what="the manager was closed")
        return 0

    cdef VirtualAddressRange _own_range(self, object value):
        self._check_open()
        if not isinstance(value, VirtualAddressRange):
            raise errors.InvalidArgument(f"an address range is needed, not {type(value).__name__}")
        if (<VirtualAddressRange>value).manager is not self:
            raise errors.InvalidArgument("the address range belongs to another manager")
        return <VirtualAddressRange>value

    cdef PhysicalAllocation _own_physical(self, object value):
        self._check_open()
        if not isinstance(value, PhysicalAllocation):
            raise errors.InvalidArgument(f"physical memory is needed, not {type(value).__name__}")
        if (<PhysicalAllocation>value).manager is not self:
            raise errors.InvalidArgument("the physical memory belongs to another manager")
        return <PhysicalAllocation>value

    cdef int32_t _device(self, object device) except? -1:
        self._check_open()
        if device is None:
            return self.native.get().device()
        return ordinal_on(self.driver, device)
