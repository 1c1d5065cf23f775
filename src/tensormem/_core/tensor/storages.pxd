# Owns: the C shape of a storage and of an element type, for the other modules of this package.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from tensormem._core.construction cimport Construction
from tensormem._core.base cimport Driver, Event
from tensormem._core.native_tensor cimport ElementWidth
from tensormem._core.resource cimport DeviceBlock, ExportCount


cdef class ElementType:
    cdef readonly object dtype
    cdef ElementWidth width
    cdef uint8_t code
    cdef uint8_t bits
    cdef uint16_t lanes
    cdef object typestr
    cdef bytes format  # of the buffer protocol, or None


cdef class Release(Ending):
    pass


cdef class Storage:
    cdef uint64_t address
    cdef uint64_t capacity
    cdef uint64_t _id
    cdef object _owner
    cdef readonly object space
    cdef readonly object memory
    cdef object _reason
    cdef object _transfer  # how the bytes came, if they were copied
    cdef readonly Driver driver
    cdef int32_t device_type
    cdef int32_t device_id
    cdef bint _readonly
    cdef bint host
    cdef bint direct_  # copies need not tell the owner of an access: its brackets change nothing
    cdef bint untouchable  # by anybody: addresses without memory
    cdef object paged  # an owner that has memory behind some addresses only, and is asked which; None for most
    cdef Release _release  # where the memory has an end and no brackets, which see to it themselves
    cdef ExportCount exports  # who uses the memory at this moment; closed for good with the storage
    cdef ExportCount operations  # those of them that are operations, and not views
    cdef ExportCount queued  # work of streams that no block was told of; closed when the memory is given back
    cdef Accesses accesses  # where the owner wants brackets around them; None for most
    cdef Event _pending  # what writes the bytes at this moment
    cdef bint _pending_outside  # and somebody else said so, who keeps no memory for it
    cdef Construction _construction
    cdef object __weakref__

    cdef inline bint is_closed(self) noexcept:
        return self.exports.count() < 0

    cdef inline bint is_pending(self) noexcept:
        return self._pending is not None

    # Whether the CPU may touch the bytes at `address` without telling the owner of it.
    cdef inline bint is_direct(self) noexcept:
        return self.host and (self.accesses is None or self.direct_)

    cdef Event pending(self)
    cdef int set_pending(self, Event event) except -1
    cdef int set_transfer(self, object report) except -1
    cdef int begin_use(self) except -1
    cdef void end_use(self) noexcept
    cdef int begin_view(self) except -1
    cdef void end_view(self) noexcept
    cdef int begin_queued_use(self) except -1
    cdef int end_queued_use(self) except -1
    cdef int _give_back(self) except -1
    cdef int check_open(self) except -1
    cdef int check_address(self) except -1
    # What ends the memory; made if there is none yet.
    cdef Ending ending(self)
    # From now on the memory goes by way of the resource that counts it by `block`, and begins where that does.
    cdef int hold_block(self, DeviceBlock block, PythonKindMemory* memory) except -1
    # Refuses to touch or hand out memory that nobody can touch.
    cdef int check_reach(self, str what) except -1
    cdef int settle(self, object timeout=*) except -1
    cdef uint64_t lend(self, bint readonly) except? 0
    cdef void let_go(self, bint readonly) noexcept


# The element type behind a name, a DType or another library's dtype.
cdef ElementType element_of(object dtype)
# The same for DLPack's three numbers; padded elements of less than a byte have a byte each.
cdef ElementType element_from_code(uint8_t code, uint8_t bits, uint16_t lanes, bint padded)
# A storage of memory that `owner` owns and is told of, with an identity that is known.
cdef Storage new_bracketed_storage(uint64_t address, uint64_t nbytes, object owner, object space, object memory,
                                   Driver driver, bint readonly, uint64_t id)
# A storage of memory that `owner` owns, made without looking at the arguments again.
cdef Storage new_storage(uint64_t address, uint64_t nbytes, object owner, object space, object memory, Driver driver,
                         int32_t device_type, int32_t device_id, bint host, bint readonly)
