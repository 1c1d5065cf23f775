"""Owns: `SharedMemory`, the owner of memory that other processes can hold, and what can be told of a descriptor.

The work is done in native/driver/host/shared_memory. Must not know: tensors, how descriptors travel.
"""
cimport cython
from libc.stdint cimport uint8_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_shared, shared_ptr, unique_ptr
from libcpp.utility cimport move

from tensormem._core.construction cimport only_the_core_makes
from tensormem._core.failures cimport check
from tensormem._core.tensor cimport Storage, new_bracketed_storage, refuse_part
from tensormem._core.native cimport AllocRequest, MemoryMaker, Status
from tensormem._core.native_tensor cimport next_storage_id
from tensormem._core.resource cimport DeviceBlock, DeviceMemoryResource
from tensormem._core.base cimport size_of

import errno
import os
import weakref

from tensormem import errors
from tensormem._core.base import claim_identity, drop_identity, share_block, shared_block


cdef extern from "driver/host/os.hpp" namespace "tensormem::host::os" nogil:
    cdef enum class FileKind(uint8_t):
        other
        shared_memory
        huge_tlb
        dma_buf
    cdef cppclass SharedFileFacts:
        FileKind kind
        cbool readable
        cbool writable
        cbool shrink_sealed
        cbool write_sealed
        uint64_t device
        uint64_t inode
        uint64_t size
    int describe_shared_file(int fd, SharedFileFacts* facts)


cdef extern from "driver/host/shared_memory.hpp" namespace "tensormem" nogil:
    cdef cppclass SharedMemoryOptions:
        const char* name
        cbool huge_pages
        cbool readers_only
    cdef cppclass AttachOptions:
        uint64_t nbytes
        cbool readonly
        cbool trusted
    cdef cppclass NativeSharedMemory "tensormem::SharedMemory":
        NativeSharedMemory()
        Status create(uint64_t nbytes, const SharedMemoryOptions& options)
        Status attach(int fd, const AttachOptions& options)
        uint64_t address()
        uint64_t nbytes()
        cbool readonly()
        cbool readers_only()
        cbool sealed()
        cbool huge()
        cbool is_open()
        int fd()
        Status reading_address(uint64_t* address)
        Status duplicate(cbool readonly, cbool trusted, int* fd)
        Status identify(uint64_t* device, uint64_t* inode)
    int try_shared_memory()


cdef extern from "resource/shared_memory_maker.hpp" namespace "tensormem" nogil:
    cdef cppclass SharedMemoryMaker(MemoryMaker):
        SharedMemoryMaker(const SharedMemoryOptions& options)
        SharedMemoryMaker(shared_ptr[NativeSharedMemory] adopted)
        const shared_ptr[NativeSharedMemory]& made()


cdef NativeSharedMemory _nothing  # what one that was released has behind it


@cython.final
@cython.freelist(16)
@cython.no_gc  # it holds numbers alone
cdef class SharedMemory:
    """Memory that other processes can hold, as the owner of a storage; made by `tensormem.memories.shm`.

    >>> import tensormem as tm
    >>> tensor = tm.zeros(4, memory="shm")
    >>> owner = tensor.storage.owner
    >>> owner.nbytes, owner.sealed, owner.readonly
    (16, True, False)
    """

    cdef shared_ptr[NativeSharedMemory] _native  # the leaf that counts the memory has a share as well
    cdef NativeSharedMemory* native  # never NULL
    cdef readonly object id  # the identity of the memory, for its storage
    cdef tuple _file  # (st_dev, st_ino), once it was asked for; then the identity is held by it
    cdef object _block  # a reference to what the memory is counted by

    def __cinit__(self):
        self.native = &_nothing

    def __dealloc__(self):
        if self._file is not None:
            drop_identity(self._file)

    @property
    def address(self):
        """Where the bytes are mapped."""
        return self.native.address()

    @property
    def nbytes(self):
        """How many there are."""
        return self.native.nbytes()

    @property
    def readonly(self):
        """Whether the mapping cannot write."""
        return self.native.readonly()

    @property
    def readers_only(self):
        """Whether everybody else may only read: what is exported cannot write."""
        return self.native.readers_only()

    @property
    def sealed(self):
        """Whether nobody who gets it can make the memory shorter."""
        return self.native.sealed()

    @property
    def huge(self):
        """Whether it has pages of 2 MiB."""
        return self.native.huge()

    @property
    def identity(self):
        """(st_dev, st_ino) of the file, the same for every descriptor of it; None once it was released."""
        if self._file is None and self.native.is_open():
            self._identify()
        return self._file

    def begin_access(self, mode):
        """The address for an access; "r" has a mapping of its own, which cannot write."""
        self._check_open()
        cdef uint64_t address = self.native.address()
        if mode == "r":
            check(self.native.reading_address(&address))
        return address

    def end_access(self, mode):
        """Nothing: all processors see the same bytes."""

    def export_fd(self, *, trust=False):
        """A new descriptor of the memory, which the caller closes. From the first one on its seals are final."""
        return self._export(False, trust)

    def export_readonly_fd(self, *, trust=False):
        """The same, and nobody can write by it."""
        return self._export(True, trust)

    def release(self):
        """Let go of it: it is unmapped and closed when no storage needs it. Whoever else holds the memory keeps it."""
        # Whoever exports a descriptor at this moment has it already, or finds none: never another file of its number.
        cdef shared_ptr[NativeSharedMemory] going
        with cython.critical_section(self):
            file, self._file = self._file, None
            self.native = &_nothing
            going.swap(self._native)
        if going.use_count() == 1:  # else a leaf has it, and releases it
            with nogil:
                going.reset()
        if file is not None:
            drop_identity(file)

    def __repr__(self):
        return f"<SharedMemory {self.native.nbytes()} bytes at {self.native.address():#x}>"

    def __reduce__(self):
        raise TypeError("shared memory is of this process; pickle the tensor through multiprocessing, or send its descriptor")

    cdef object _export(self, bint readonly, bint trust):
        cdef int fd = -1
        self._check_open()
        self.identity  # whoever comes back with a descriptor of it is recognised
        with cython.critical_section(self):
            self._check_open()
            check(self.native.duplicate(readonly, trust, &fd))
        return fd

    cdef int _check_open(self) except -1:
        if not self.native.is_open():
            raise errors.UseAfterFree(self.id, 0, what="the shared memory was released")
        return 0

    cdef int _identify(self) except -1:
        cdef uint64_t device = 0, inode = 0
        check(self.native.identify(&device, &inode))
        file = (device, inode)
        self.id = claim_identity(file, self.id)
        self._file = file
        block = None if self._block is None else self._block()
        if block is not None:
            share_block(file, block)
        return 0


only_the_core_makes(SharedMemory, b"shared memory comes from tensormem.memories.shm")


cdef bytes _NAME = b"tensormem"
cdef uint64_t _HUGE_PAGE = 2 << 20


def allocate_shared_memory(DeviceMemoryResource mr not None, nbytes, space, memory, *, tag=None, bint huge_pages=False,
                           bint readers_only=False, stream=None, alignment=None):
    """A storage of new shared memory, zeroed, that `mr` counts, and that goes back in the order of `stream`. With `huge_pages`, of 2 MiB pages or not at all; with
    `readers_only`, others never write."""
    cdef SharedMemory owner = SharedMemory.__new__(SharedMemory)
    cdef bytes called = _NAME if tag is None else tag.encode()[:200].replace(b"\0", b"?")
    cdef SharedMemoryOptions options
    options.name = called
    options.huge_pages = huge_pages
    options.readers_only = readers_only
    cdef uint64_t wanted = size_of(nbytes)
    if huge_pages:
        wanted += -wanted % _HUGE_PAGE
    cdef unique_ptr[SharedMemoryMaker] maker
    maker.reset(new SharedMemoryMaker(options))
    cdef DeviceBlock block = _block_of(mr, maker.get(), wanted, stream, alignment, tag)
    owner._native = maker.get().made()
    owner.native = owner._native.get()
    owner.id = next_storage_id()
    owner._block = weakref.ref(block)
    cdef Storage made = _storage_of(owner, wanted, space, memory, mr)
    made.hold_block(block, NULL)
    return made


def attach_shared_memory(DeviceMemoryResource mr not None, fd, nbytes, space, memory, *, tag=None, bint readonly=False,
                         bint trust=False):
    """A storage of the shared memory behind a descriptor, which stays the caller's, that `mr` counts. Type, size and
    seals are checked first."""
    cdef SharedMemory owner = SharedMemory.__new__(SharedMemory)
    cdef shared_ptr[NativeSharedMemory] attached = make_shared[NativeSharedMemory]()
    cdef NativeSharedMemory* native = attached.get()
    cdef AttachOptions options
    cdef int given = fd_of(fd)
    cdef Status status
    options.nbytes = 0 if nbytes is None else size_of(nbytes)
    options.readonly = readonly
    options.trusted = trust
    with nogil:
        status = native.attach(given, options)
    check(move(status))
    owner._native = attached
    owner.native = native
    owner._identify()
    cdef Storage made = _storage_of(owner, native.nbytes(), space, memory, mr)
    cdef DeviceBlock block = shared_block(owner._file)
    if block is not None:
        try:
            made.ending().attach(block, NULL)
            return made
        except errors.UseAfterFree:  # its last holder lets go of it at this moment
            pass
    cdef unique_ptr[SharedMemoryMaker] maker
    maker.reset(new SharedMemoryMaker(attached))
    block = _block_of(mr, maker.get(), native.nbytes(), None, None, tag)
    share_block(owner._file, block)
    made.hold_block(block, NULL)
    return made


cdef DeviceBlock _block_of(DeviceMemoryResource mr, SharedMemoryMaker* maker, uint64_t nbytes, object stream,
                           object alignment, object tag):
    cdef AllocRequest request
    mr._request(&request, 1, stream, 1 if alignment is None else alignment, tag)
    request.nbytes = nbytes
    request.maker = maker
    request.zeroed = True  # new files are
    cdef DeviceBlock block = mr.take(request)
    if maker.made().get() is NULL:
        refuse_part(mr, block)
    return block


cdef Storage _storage_of(SharedMemory owner, uint64_t nbytes, object space, object memory, DeviceMemoryResource mr):
    return new_bracketed_storage(owner.native.address(), nbytes, owner, space, memory, mr.driver,
                                 owner.native.readonly(), owner.id)


def why_no_shared_memory():
    """Why shared memory cannot be made here; None where it can."""
    cdef int error
    with nogil:
        error = try_shared_memory()
    return None if error == 0 else f"the system refuses it: {os.strerror(error)} ({errno.errorcode.get(error, error)})"


def describe_fd(fd):
    """What a descriptor stands for: "shm", "hugetlb", "dma" or "other"; its size; and its file (st_dev, st_ino)."""
    cdef SharedFileFacts facts
    cdef int given = fd_of(fd)
    cdef int error
    with nogil:
        error = describe_shared_file(given, &facts)
    if error == errno.EBADF:
        raise errors.InvalidArgument(f"{given} is no open descriptor")
    if error != 0:
        raise errors.DriverError(error, errno.errorcode.get(error, "an unknown code"), os.strerror(error), "fstat")
    kind = {FileKind.shared_memory: "shm", FileKind.huge_tlb: "hugetlb", FileKind.dma_buf: "dma"}.get(facts.kind, "other")
    return kind, facts.size, (facts.device, facts.inode)


cdef int fd_of(object fd) except? -1:
    if isinstance(fd, bool) or not hasattr(fd, "__index__"):
        raise errors.InvalidArgument(f"a descriptor is a number, not {type(fd).__name__}")
    number = fd.__index__()
    if not 0 <= number < 2**31:
        raise errors.InvalidArgument(f"{number} is no open descriptor")
    return number
