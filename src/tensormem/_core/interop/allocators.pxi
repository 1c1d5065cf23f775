"""Owns: resources as other libraries call them: NumPy's data allocator, and C functions for PyTorch and its like.

What those C functions could not do is told by `last_error`: they themselves can only answer with a null pointer.
Must not know: which library is installed; `tensormem.interop` imports them.
"""
cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint64_t
from libcpp.memory cimport shared_ptr
from libcpp.string_view cimport string_view
from libcpp.utility cimport move

from tensormem._core.construction cimport Construction, begin_construction
from tensormem._core.failures cimport check
from tensormem._core.native cimport ResourcePtr, Resource, Status, TagId, intern_tag
from tensormem._core.resource cimport DeviceMemoryResource

import os

from tensormem import errors


cdef extern from "base/status.hpp" namespace "tensormem" nogil:
    cdef cppclass Failure:
        pass


cdef extern from "resource/refusals.hpp" namespace "tensormem" nogil:
    cdef cppclass Refusals:
        uint64_t count()
        shared_ptr[const FailedStatus] last()
        int32_t last_device()
    cdef cppclass FailedStatus "tensormem::Status":
        const Failure& failure()


cdef extern from "resource/address_book.hpp" namespace "tensormem" nogil:
    cdef cppclass AddressBook:
        size_t size()


cdef extern from "resource/c_allocator.hpp" namespace "tensormem" nogil:
    cdef cppclass CAllocator:
        const AddressBook& book()
        const Refusals& refusals()


cdef extern from "resource/device_hooks.hpp" namespace "tensormem" nogil:
    cdef cppclass DeviceHooks:
        @staticmethod
        DeviceHooks& instance()
        Status set(int32_t device, ResourcePtr resource, TagId tag)
        AddressBook& book()
        Refusals& refusals()


cdef extern from "resource/device_hooks.hpp" nogil:
    void* tensormem_allocate(ssize_t nbytes, int device, void* stream)


cdef extern from "_core/failures.hpp" namespace "tensormem":
    int raise_failure(const Failure& failure) except -1


cdef extern from "_core/numpy_handler.hpp" namespace "tensormem":
    cdef cppclass NumpyHandler:
        CAllocator allocator
    cdef cppclass NumpyTable:
        object set_handler(object handler)
    ResourcePtr keep_with_object(Resource* native, PyObject* object)
    object make_numpy_handler(ResourcePtr resource, TagId tag, NumpyHandler** handler)
    const char* read_numpy_table(object capsule, NumpyTable* table)


cdef extern from "_core/numpy_watch.hpp" namespace "tensormem":
    cdef cppclass NumpyWatch:
        @staticmethod
        void install(const NumpyTable& table, size_t least)


cdef extern from "dlfcn.h" nogil:
    ctypedef struct Dl_info:
        const char* dli_fname
    int dladdr(const void* address, Dl_info* info)


@cython.final
cdef class NumpyAllocator:
    """One resource as NumPy's data allocator. Made by `tensormem.interop.numpy.use`; arrays keep what they need of it."""

    cdef readonly DeviceMemoryResource mr
    cdef readonly str tag
    cdef object _capsule
    cdef NumpyHandler* _native
    cdef Construction _construction

    def __init__(self, DeviceMemoryResource mr not None, tag="numpy"):
        begin_construction(self._construction, self)
        self._capsule = make_numpy_handler(_kept(mr), _tag(tag), &self._native)
        self.mr = mr
        self.tag = tag

    def install(self, table):
        """Let NumPy allocate here, in this thread or asynchronous task; gives what did it before."""
        self._check_made()
        return _table(table).set_handler(self._capsule)

    @staticmethod
    def restore(table, previous):
        """Let NumPy allocate as it did before `install`."""
        _table(table).set_handler(previous)

    @property
    def blocks_outstanding(self):
        """How many arrays' memory is out."""
        self._check_made()
        return self._native.allocator.book().size()

    @property
    def failures(self):
        """How often NumPy was refused: memory, or a free of what is not ours."""
        self._check_made()
        return self._native.allocator.refusals().count()

    @property
    def last_error(self):
        """Why NumPy was refused the last time; None if it never was."""
        self._check_made()
        return _error(self._native.allocator.refusals().last())

    def __repr__(self):
        return f"<NumpyAllocator over {self.mr!r}, tag {self.tag!r}>"

    def __reduce__(self):
        raise TypeError("an allocator belongs to its process and cannot be pickled")

    cdef int _check_made(self) except -1:
        if self._native is NULL:
            raise errors.InvalidArgument("this allocator was never made; call NumpyAllocator(mr)")
        return 0


def check_numpy_table(table):
    """Raise `NotSupported` unless NumPy's table of functions has the allocator hook where it is expected."""
    _table(table)


def watch_numpy(table, size_t least):
    """From now on recordings tell of NumPy's own arrays of `least` bytes and more, in every thread."""
    NumpyWatch.install(_table(table), least)


def set_device_hook(device, DeviceMemoryResource mr, tag):
    """Let the exported C functions allocate for `device` from `mr`; None: from nowhere."""
    cdef ResourcePtr resource
    cdef int32_t number = _device(device)
    if mr is not None:
        resource = _kept(mr)
    check(DeviceHooks.instance().set(number, move(resource), _tag(tag)))


def device_hook_blocks():
    """How many blocks the C functions have handed out and not yet been given back."""
    return DeviceHooks.instance().book().size()


def device_hook_failures():
    """How often a C function had to refuse."""
    return DeviceHooks.instance().refusals().count()


def device_hook_last_error():
    """Why a C function refused the last time, and the device that was asked, or -1; None if none ever did."""
    return _error(DeviceHooks.instance().refusals().last()), DeviceHooks.instance().refusals().last_device()


def native_library():
    """The path of the shared library that exports the C functions."""
    cdef Dl_info info
    if dladdr(<const void*>&tensormem_allocate, &info) == 0 or info.dli_fname is NULL:
        raise errors.InternalError("the native library cannot be found in its own process")
    return os.path.realpath(os.fsdecode(info.dli_fname))


cdef ResourcePtr _kept(DeviceMemoryResource mr) except *:
    mr._check_open()
    return keep_with_object(mr.native, <PyObject*>mr)


cdef TagId _tag(object tag) except? 0xFFFFFFFF:
    if not isinstance(tag, str):
        raise errors.InvalidArgument(f"a tag is text, not {type(tag).__name__}")
    cdef bytes encoded = tag.encode()
    return intern_tag(string_view(<const char*>encoded, len(encoded)))


cdef int32_t _device(object device) except? -1:
    # Everything that is no device of ours is the same error, however large.
    if not isinstance(device, int) or not -2**31 <= device < 2**31:
        raise errors.InvalidArgument(f"a device is a number, not {device!r}")
    return device


cdef NumpyTable _table(object capsule) except *:
    cdef NumpyTable table
    cdef const char* wrong = read_numpy_table(capsule, &table)
    if wrong[0] != 0:
        raise errors.NotSupported(f"this NumPy's allocator hook: {wrong.decode()}")
    return table


cdef object _error(shared_ptr[const FailedStatus] last):
    if last.get() is NULL:
        return None
    try:
        raise_failure(last.get().failure())
    except Exception as error:
        return error.with_traceback(None)
