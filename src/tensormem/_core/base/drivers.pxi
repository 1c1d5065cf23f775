"""Owns: the driver waist as Python sees it: devices, copies and fills on a stream, and raw virtual memory.

Addresses and handles are plain integers here and nothing is owned: `tensormem.vmm` and the resources are what people
use. Must not know: spaces, resources, tensors.
"""
cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.utility cimport move

from tensormem._core.construction cimport only_the_core_makes
from tensormem._core.failures cimport check
from tensormem._core.native cimport (
    AccessFlags,
    Advice,
    CopyShape,
    DeviceInfo,
    Granularity,
    MemoryInfo,
    PhysicalHandle,
    PhysicalInfo,
    PhysicalOptions,
    Pitched,
    Status,
    StreamId as StreamNumber,
    UsedRange,
)
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native_host cimport HostCounters, HostDriver, host_driver
from tensormem._core.native_trace cimport report_copy

from tensormem import errors

_ACCESS = {"none": 0, "read": 1, "read_write": 3}
_ADVICE = {"read_mostly": 1, "preferred_location": 3, "accessed_by": 5}
_NO_PLACEMENT = 0xFFFFFFFFFFFFFFFF


cdef class Driver:
    """One way to reach memory: the host, or a vendor's GPUs. Got from `tensormem.drivers`, never made by hand.

    >>> from tensormem.drivers import host
    >>> host().device_count
    1
    """

    def __repr__(self):
        return f"<Driver {self._label()}{' (simulated)' if self.simulated else ''}>"

    def _label(self):
        return place_name(self, self.device)

    def __reduce__(self):
        from tensormem import drivers

        return drivers.get, (self._label(),)

    @property
    def device_count(self):
        """How many devices this driver has."""
        cdef int32_t count = 0
        check(self.native.device_count(&count))
        return count

    def device_info(self, device=None):
        """Name, size and abilities of a device, as a dict."""
        cdef DeviceInfo info
        check(self.native.device_info(self._device(device), &info))
        return {
            "name": (<bytes>info.name).decode(),
            "total_bytes": info.total_bytes,
            "numa_node": info.numa_node,
            "simulated": info.simulated,
            "managed_memory": info.managed_memory,
            "virtual_memory": info.virtual_memory,
            "memory_pools": info.memory_pools,
            "posix_handles": info.posix_handles,
            "concurrent_managed_access": info.concurrent_managed_access,
            "integrated": info.integrated,
            "host_native_atomics": info.host_native_atomics,
            "pageable_memory_access": info.pageable_memory_access,
        }

    def memory_info(self, device=None):
        """(free bytes, total bytes) of a device, as its driver sees them now."""
        cdef MemoryInfo info
        check(self.native.memory_info(self._device(device), &info))
        return info.free_bytes, info.total_bytes

    # --- Work on a stream. What is given counts as in use for the length of the call: blocks and address ranges, and
    # --- memory of ours that a plain number lies in. The caller keeps it until the stream has passed.

    def copy(self, destination, source, nbytes, stream=None):
        """Copy `nbytes` from one address to another, on a stream."""
        cdef uint64_t size = size_of(nbytes)
        self.copy_pitched(destination, size, source, size, (size, 1, 1), stream)

    def copy_pitched(self, destination, destination_pitch, source, source_pitch, shape, stream=None, *,
                     destination_plane=None, source_plane=None):
        """Copy a box of (width, height, depth) bytes, rows and planes apart by the given pitches, on a stream."""
        cdef CopyShape box = _box(shape)
        cdef StreamNumber queue = stream_id(stream, self.native)
        cdef Pitched to, origin
        cdef Status status
        cdef _Operand left = _operand(self, destination)
        cdef _Operand right = _operand(self, source)
        to = _pitched(left.address, destination_pitch, destination_plane, box)
        origin = _pitched(right.address, source_pitch, source_plane, box)
        left.reach(_extent(to, box))
        right.reach(_extent(origin, box))
        with nogil:
            status = self.native.copy(to, origin, box, queue)
        check(move(status))
        report_copy(to.address, origin.address, box.width * box.height * box.depth, queue)

    def fill(self, destination, value, element_bytes, shape, stream=None, *, pitch=None, plane=None):
        """Repeat `value`, an unsigned number of 1, 2, 4 or 8 bytes, over a box of (width, height, depth) bytes."""
        cdef CopyShape box = _box(shape)
        cdef _Operand operand = _operand(self, destination)
        cdef Pitched to = _pitched(operand.address, box.width if pitch is None else pitch, plane, box)
        operand.reach(_extent(to, box))
        cdef StreamNumber queue = stream_id(stream, self.native)
        cdef uint64_t pattern = address_of(value)
        cdef uint32_t width = <uint32_t>min(size_of(element_bytes), 0xFFFFFFFF)
        cdef Status status
        with nogil:
            status = self.native.fill(to, box, pattern, width, queue)
        check(move(status))

    def pin(self, address, nbytes):
        """Page-lock memory that somebody else allocated."""
        cdef uint64_t size = size_of(nbytes)
        cdef _Operand operand = _operand(self, address)
        cdef uint64_t start = operand.address
        operand.reach(size)
        cdef Status status
        with nogil:
            status = self.native.pin(start, size)
        check(move(status))

    def unpin(self, address, nbytes):
        """Let go of memory locked by `pin`."""
        check(self.native.unpin(address_of(address), size_of(nbytes)))

    # --- Managed memory ---

    def advise(self, address, nbytes, advice, device=None, *, bint unset=False):
        """Say how managed memory will be used: "read_mostly", "preferred_location" or "accessed_by" a device ("main" or -1:
        the host). `unset` takes it back. The bytes are the same whatever is said."""
        if advice not in _ADVICE:
            raise errors.InvalidArgument(f"advice is one of {', '.join(_ADVICE)}, not {advice!r:.40}")
        cdef uint64_t size = size_of(nbytes)
        cdef _Operand operand = _operand(self, address)
        cdef uint64_t start = operand.address
        operand.reach(size)
        cdef Advice said = <Advice><int>(_ADVICE[advice] + (1 if unset else 0))
        cdef int32_t where = self._location(device)
        cdef Status status
        with nogil:
            status = self.native.advise(start, size, said, where)
        check(move(status))

    def prefetch(self, address, nbytes, device=None, stream=None):
        """Start moving managed memory to a device ("main" or -1: the host), on a stream."""
        cdef uint64_t size = size_of(nbytes)
        cdef _Operand operand = _operand(self, address)
        cdef uint64_t start = operand.address
        operand.reach(size)
        cdef int32_t where = self._location(device)
        cdef StreamNumber queue = stream_id(stream, self.native)
        cdef Status status
        with nogil:
            status = self.native.prefetch(start, size, where, queue)
        check(move(status))

    # --- Memory of others ---

    def import_external(self, int32_t fd, nbytes, device=None):
        """The address at which a device reaches `nbytes` of memory behind a descriptor, such as a DMA-BUF. The driver
        gets a duplicate of it; `release_external` gives the memory back."""
        cdef uint64_t address = 0
        cdef uint64_t size = size_of(nbytes)
        cdef int32_t where = self._device(device)
        cdef Status status
        with nogil:
            status = self.native.external_import(where, fd, size, &address)
        check(move(status))
        return address

    def release_external(self, address):
        """Let go of memory that `import_external` gave; no work may use it any more."""
        cdef uint64_t start = address_of(address)
        cdef Status status
        with nogil:
            status = self.native.external_release(start)
        check(move(status))

    # --- Raw virtual memory ---

    def granularity(self, device=None):
        """(minimum, recommended) size of a page of virtual memory."""
        cdef Granularity found
        check(self.native.granularity(self._device(device), &found))
        return found.minimum, found.recommended

    def reserve(self, size, alignment=4096):
        """Reserve addresses without memory behind them; gives the first one."""
        cdef uint64_t address = 0
        check(self.native.reserve(size_of(size), alignment_of(alignment), &address))
        return address

    def release(self, address, size):
        """Give reserved addresses back; nothing may be mapped there any more."""
        check(self.native.release(address_of(address), size_of(size)))

    def physical_create(self, size, device=None, *, bint exportable=False, bint huge_pages=True,
                        placement=_NO_PLACEMENT):
        """Take physical memory, zeroed; gives its handle."""
        cdef uint64_t nbytes = size_of(size)
        cdef PhysicalOptions options
        cdef PhysicalHandle handle = 0
        cdef int32_t where = self._device(device)
        cdef Status status
        options.exportable = exportable
        options.huge_pages = huge_pages
        options.placement = address_of(placement)
        with nogil:
            status = self.native.physical_create(where, nbytes, options, &handle)
        check(move(status))
        return handle

    def physical_destroy(self, physical):
        """Give physical memory back; mappings of it keep their pages until they are unmapped."""
        cdef PhysicalHandle handle = address_of(physical)
        cdef Status status
        with nogil:
            status = self.native.physical_destroy(handle)
        check(move(status))

    def physical_info(self, physical):
        """Size, device and kind of physical memory, as a dict."""
        cdef PhysicalInfo info
        check(self.native.physical_info(address_of(physical), &info))
        return {
            "size": info.size,
            "device": info.device,
            "exportable": info.exportable,
            "huge_pages": info.huge_pages,
            "imported": info.imported,
        }

    def map(self, address, size, physical, physical_offset=0):
        """Put physical memory behind reserved addresses. It cannot be touched until `set_access` says so."""
        check(self.native.map(address_of(address), size_of(size), address_of(physical), size_of(physical_offset)))

    def unmap(self, address, size):
        """Take the memory from behind these addresses; they stay reserved."""
        cdef uint64_t start = address_of(address)
        cdef uint64_t nbytes = size_of(size)
        cdef Status status
        with nogil:
            status = self.native.unmap(start, nbytes)
        check(move(status))

    def set_access(self, address, size, access, device=None):
        """Say what a device may do at these addresses: "none", "read" or "read_write"."""
        if access not in _ACCESS:
            raise errors.InvalidArgument(f"access is one of {', '.join(_ACCESS)}, not {access!r}")
        cdef uint64_t start = address_of(address)
        cdef uint64_t nbytes = size_of(size)
        cdef AccessFlags flags = <AccessFlags><int>_ACCESS[access]
        cdef int32_t where = self._device(device)
        cdef Status status
        with nogil:
            status = self.native.set_access(start, nbytes, where, flags)
        check(move(status))

    def physical_export(self, physical):
        """A file descriptor of the memory, the caller's to close."""
        cdef int32_t fd = -1
        check(self.native.physical_export(address_of(physical), &fd))
        return fd

    def physical_import(self, int32_t fd, device=None):
        """The handle of memory that another process exported; the descriptor stays the caller's."""
        cdef PhysicalHandle handle = 0
        check(self.native.physical_import(self._device(device), fd, &handle))
        return handle

    cdef int32_t _location(self, object device) except? -2:
        # Managed memory can also be on the host, which the drivers of GPUs number -1.
        if device is None or type(device) is int:
            return self._device(device)
        from tensormem.drivers import resolve

        return -1 if resolve(device, ordinals=True).kind == "main" else ordinal_on(self, device)

    cdef int32_t _device(self, object device) except? -1:
        # Unless told, its own. A number goes to the native driver as it is, which knows whether there is such a device.
        if device is None:
            return self.device
        return device if type(device) is int else ordinal_on(self, device)


only_the_core_makes(Driver, b"drivers come from tensormem.drivers, for example tensormem.drivers.host()")


cdef CopyShape _box(object shape) except *:
    cdef CopyShape box
    if len(shape) != 3:
        raise errors.InvalidArgument(f"a box has (width, height, depth), not {shape!r}")
    box.width = size_of(shape[0])
    box.height = size_of(shape[1])
    box.depth = size_of(shape[2])
    return box


@cython.final
@cython.freelist(8)
cdef class _Operand:
    """Memory that a call was given, in use until this is dropped."""

    cdef object _used  # None for a plain number
    cdef UsedRange _range  # of a plain number: whoever gives the memory back finds it here
    cdef uint64_t address

    def __dealloc__(self):
        if self._used is not None:
            self._used._end_use()

    cdef void reach(self, uint64_t nbytes) noexcept:
        # How far the call reaches from the address.
        self._range.reach(nbytes)


cdef _Operand _operand(Driver driver, object given):
    # Whoever knows its memory says whether the driver reaches it.
    cdef _Operand made = _Operand.__new__(_Operand)
    begin = None if type(given) is int else getattr(type(given), "_begin_use", None)
    if begin is None:
        made.address = address_of(given)
        made._range.begin(made.address)
    else:
        made.address = address_of(begin(given, driver))
        made._used = given
    return made


cdef uint64_t _extent(const Pitched& place, const CopyShape& box) noexcept:
    if box.width == 0 or box.height == 0 or box.depth == 0:
        return 1
    return (box.depth - 1) * place.plane_pitch + (box.height - 1) * place.row_pitch + box.width


cdef Pitched _pitched(uint64_t address, object pitch, object plane, const CopyShape& box) except *:
    cdef Pitched place
    place.address = address
    place.device = -2  # the driver finds out whose memory it is
    place.row_pitch = size_of(pitch)
    place.plane_pitch = place.row_pitch * box.height if plane is None else size_of(plane)
    return place


cdef Driver find_driver(object said, tuple among, str purpose, bint ordinals):
    # What is meant by a "where" is known above this module; it is asked when something is made, and never before.
    from tensormem.drivers import resolve

    return resolve(said, among, purpose, ordinals=ordinals).driver


cdef int32_t ordinal_on(Driver driver, object said) except? -1:
    # The number of the device that is meant, which has to be one of this driver's; where it was not said whose GPU it
    # is, it is this driver's.
    from tensormem.drivers import resolve

    cdef int32_t count = driver.device_count
    if type(said) is int and 0 <= said < count:
        return said
    mine = resolve(driver)
    where = resolve(said, ordinals=True)
    plain = hasattr(type(said), "__index__")  # a number says no kind
    ours = plain or (where.kind == mine.kind and where.vendor in (None, mine.vendor))
    if not ours or where.number >= count:
        names = "host" if mine.kind == "main" else " and ".join([f"{driver.name}:{number}" for number in range(count)])
        raise errors.UnsuitableSpace(str(where), f"it is not a device of the {driver.name} driver, which has {names}")
    return where.number


cdef str place_name(Driver driver, int32_t device):
    if driver is None:
        return "nothing"
    return driver.name if driver.name == "host" else f"{driver.name}:{device}"


cdef Driver wrap_driver(NativeDriver* native, int32_t device, bint simulated):
    cdef Driver driver = Driver.__new__(Driver)
    driver.native = native
    driver.device = device
    driver.simulated = simulated
    driver.name = (<bytes>native.name()).decode()
    return driver


cdef dict _by_address = {}


def from_capsule(capsule):
    """The driver that another library made: a capsule called "tensormem_driver" around a `tensormem::Driver`, which has
    to live as long as the process. The same driver gives the same object."""
    if not PyCapsule_IsValid(capsule, "tensormem_driver"):
        raise errors.InvalidArgument(f"a driver comes in a capsule called tensormem_driver, not as {capsule!r:.80}")
    cdef NativeDriver* native = <NativeDriver*>PyCapsule_GetPointer(capsule, "tensormem_driver")
    return _by_address.setdefault(<uint64_t>native, wrap_driver(native, 0, False))


def host():
    """The driver of the host: main memory, worker-thread streams, real virtual memory."""
    if not _configured:
        _configure()
    return _HOST


def abstract():
    """The driver of abstract memory: addresses and 64 TiB of pages that are counted and never there; its streams are
    the host's. For replays, which ask what an elastic pool would do, and for tests: no registry knows it."""
    host()  # whose streams the environment may limit
    return _ABSTRACT


cdef bint _configured = False


def _configure():
    # What the environment says, once; a wrong value raises here, and again until it is right.
    global _configured
    from tensormem.config import get_config

    config = get_config()
    check(host_driver().set_stream_limit(config.max_streams))
    if config.huge_pages == "never":
        host_driver().turn_off_huge_pages()
    _configured = True


def host_facts():
    """What the host driver found on this machine and what it holds at this moment, as plain values."""
    cdef HostDriver* native = &host_driver()
    cdef HostCounters held = native.counters()
    return {
        "huge_pages": native.huge_pages_work(),
        "huge_page_reason": native.huge_page_reason().decode(),
        "streams": held.streams,
        "events": held.events,
        "page_blocks": held.page_blocks,
        "pins": held.pins,
        "reservations": held.reservations,
        "mappings": held.mappings,
        "physicals": held.physicals,
        "committed_bytes": held.committed_bytes,
        "leftovers": held.leftovers,
        "areas": held.areas,
        "area_limit": held.area_limit,
    }


cdef extern from "_core/gil.hpp" namespace "tensormem":
    void install_gil_hooks()


cdef extern from "driver/abstract/abstract_driver.hpp" namespace "tensormem" nogil:
    cdef cppclass AbstractDriver(NativeDriver):
        pass
    AbstractDriver& abstract_driver()


install_gil_hooks()
cdef Driver _ABSTRACT = wrap_driver(<NativeDriver*>&abstract_driver(), 0, True)
cdef Driver _HOST = wrap_driver(<NativeDriver*>&host_driver(), 0, False)
