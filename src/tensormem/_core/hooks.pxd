# Owns: the declarations of hooks.hpp: how native code calls Python functions.
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t
from libcpp cimport bool as cbool

from tensormem._core.native cimport (
    AllocRequest,
    Block,
    LevelCallback,
    MemoryCallbacks,
    ResourceHooks,
    RetryCallback,
    Status,
    StreamId,
)


cdef extern from "_core/hooks.hpp" namespace "tensormem":
    ctypedef void (*TakeFunction)(PyObject*, const AllocRequest*, uint64_t*, Status*) noexcept
    ctypedef void (*GiveFunction)(PyObject*, uint64_t, uint64_t, StreamId, Status*) noexcept
    ctypedef void (*RetryFunction)(PyObject*, uint64_t, cbool*, Status*) noexcept
    ctypedef void (*LevelFunction)(PyObject*, int, uint64_t, Status*) noexcept
    ctypedef void (*AllocateFunction)(PyObject*, const AllocRequest*, Block*, Status*) noexcept
    ctypedef void (*DeallocateFunction)(PyObject*, const Block*, StreamId, Status*) noexcept
    ctypedef void (*ReapFunction)(PyObject*, Status*) noexcept

    Status python_failure(PyObject* exception, const char* what, uint64_t nbytes)
    MemoryCallbacks memory_callbacks(PyObject* context, TakeFunction take, GiveFunction give)
    RetryCallback retry_callback(PyObject* context, RetryFunction retry)
    LevelCallback level_callback(PyObject* context, LevelFunction changed)
    ResourceHooks resource_hooks(PyObject* context, AllocateFunction allocate, DeallocateFunction deallocate,
                                 ReapFunction reap)
