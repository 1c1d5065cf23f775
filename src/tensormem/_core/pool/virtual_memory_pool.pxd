# Owns: the C shape of elastic pools, for the other modules of this package.
from libc.stdint cimport int32_t, uint64_t
from libcpp.memory cimport shared_ptr, weak_ptr

from tensormem._core.construction cimport Construction
from tensormem._core.base cimport Driver
from tensormem._core.native_pool cimport LocalBudget, PoolBlockId
from tensormem._core.native_pool cimport PoolBlock as NativeBlock
from tensormem._core.native_pool cimport VirtualMemoryPool as NativePool
from tensormem._core.resource cimport ExportCount, SharedUse


cdef class PoolBlock:
    cdef readonly VirtualMemoryPool pool
    cdef readonly object on_move
    cdef weak_ptr[NativePool] _native  # there also when the collector has taken `pool` away
    cdef PoolBlockId _id
    cdef bint _owned
    cdef object __weakref__

    cdef NativeBlock _look(self) except *


cdef class VirtualMemoryPool:
    cdef shared_ptr[NativePool] native
    cdef readonly Driver driver
    cdef readonly int32_t device
    cdef readonly object budget
    cdef readonly bint closed
    cdef ExportCount _uses  # by calls that are under way; closed for good with the pool
    cdef object _blocks  # by id, those that somebody holds
    cdef Construction _construction
    cdef object __weakref__

    cdef NativePool* _open(self) except NULL
    cdef SharedUse[NativePool] _share(self) except *
    cdef LocalBudget* _own_limit(self)
    cdef _fit_budget(self)
    cdef _check_not_viewed(self)
    cdef PoolBlockId _own(self, object block, object size) except 0
    cdef uint64_t _allocate_at(self, object offset, object size, object tag) except? 0
    cdef PoolBlock _allocate(self, object size, object alignment, bint movable, object on_move, object tag)
    cdef tuple _resize(self, PoolBlock block, object size)
