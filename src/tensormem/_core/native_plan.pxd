# Owns: the declarations of native/plan, of the resources that serve a plan, and of plan_hooks.hpp. No code.
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from tensormem._core.native cimport Driver, Resource, ResourcePtr, Status


cdef extern from "plan/planner.hpp" namespace "tensormem" nogil:
    cdef cppclass PlanItem:
        int64_t lower
        int64_t upper
        int64_t size
    cdef cppclass PlanOptions:
        int64_t capacity
        int64_t alignment
        double seconds
        uint64_t seed
    cdef cppclass PlanProgress:
        double seconds
        int64_t height
        int64_t bound
        uint64_t steps
    cdef cppclass PlanResult:
        vector[int64_t] offsets
        int64_t height
        int64_t bound
        cbool is_optimal
        cbool was_cancelled
        double seconds
        uint64_t steps


cdef extern from "plan/plan_check.hpp" namespace "tensormem" nogil:
    cbool plan_is_sound(const vector[PlanItem]& items, const vector[int64_t]& offsets, int64_t height)


cdef extern from "_core/plan_hooks.hpp" namespace "tensormem":
    ctypedef cbool (*WatchFunction)(PyObject*, const PlanProgress*) noexcept
    Status make_plan_watched(const vector[PlanItem]& items, const PlanOptions& options, PyObject* context,
                             WatchFunction function, PlanResult* result)


cdef extern from "resource/planned_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass PlannedBlock:
        uint64_t offset
        uint64_t nbytes
    cdef cppclass PlannedUsage:
        uint64_t planned
        uint64_t fallbacks
        uint64_t position
    cdef cppclass PlannedMemoryResource(Resource):
        @staticmethod
        Status create(ResourcePtr upstream, vector[PlannedBlock] plan, uint64_t height, uint64_t alignment,
                      shared_ptr[PlannedMemoryResource]* out)
        void new_step()
        PlannedUsage usage()


cdef extern from "resource/abstract_memory_resource.hpp" namespace "tensormem" nogil:
    cdef cppclass AbstractMemoryResource(Resource):
        AbstractMemoryResource(Driver& driver, uint64_t capacity)
        uint64_t capacity()
        uint64_t peak_bytes()
