# cython: language_level=3, freethreading_compatible=True
"""Owns: copying the elements of one tensor into another of the same shape: by the CPU, or by a driver in boxes.

Routes are chosen above, by `tensormem.copy`. Must not know: spaces. The caller keeps both tensors alive until the
stream has passed.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.utility cimport move

from tensormem._core.drivers cimport Driver
from tensormem._core.failures cimport check
from tensormem._core.native cimport Driver as NativeDriver
from tensormem._core.native cimport Status, StreamId
from tensormem._core.native_tensor cimport CopyBox, CopyPlan, StridedPlace, as_box, plan_copy, run_on_host
from tensormem._core.streams cimport stream_id
from tensormem._core.tensors cimport Tensor

from tensormem import errors

# Below this, letting go of the GIL costs more than the copy.
cdef uint64_t _QUICK = 1 << 14


cdef extern from *:
    """
    #include "tensor/copy_plan.hpp"
    #include "tensor/host_copy.hpp"
    static void tm_run_and_drop(void* plan) {
      auto* mine = static_cast<tensormem::CopyPlan*>(plan);
      tensormem::run_on_host(*mine);
      delete mine;
    }
    """
    void tm_run_and_drop(void* plan) noexcept nogil


def copy_on_host(Tensor to not None, Tensor source not None, Driver driver not None, stream=None):
    """Copy with the CPU, in the order of `stream` of `driver`; how many bytes."""
    cdef CopyPlan plan
    cdef CopyPlan* queued
    cdef Status status
    cdef StreamId queue = stream_id(stream, driver.native)
    cdef uint64_t nbytes
    _plan(to, source, &plan)
    nbytes = plan.nbytes()
    if nbytes == 0:
        return 0
    if queue != 0:
        queued = new CopyPlan(plan)
        with nogil:
            status = driver.native.launch_host(tm_run_and_drop, queued, queue)
        if not status.ok():
            del queued
        check(move(status))
    elif nbytes <= _QUICK:
        run_on_host(plan)
    else:
        with nogil:
            run_on_host(plan)
    return nbytes


def copy_by_driver(Tensor to not None, Tensor source not None, Driver driver not None, stream=None, *,
                   int32_t to_device, int32_t source_device, most_boxes=4096):
    """Copy with the driver's own copies of boxes; how many bytes, or -1 where that would take too many boxes."""
    cdef CopyPlan plan
    cdef CopyBox box
    cdef int32_t outer = 0
    cdef StreamId queue = stream_id(stream, driver.native)
    cdef Status status
    _plan(to, source, &plan)
    if plan.run == 0:
        return 0
    if not as_box(plan, &box, &outer):
        return -1
    boxes = 1
    for i in range(outer):
        boxes *= plan_length(plan, i)
    if boxes > most_boxes:
        return -1
    box.to.device = to_device
    box.source.device = source_device
    with nogil:
        status = _walk(driver.native, plan, 0, outer, box, queue)
    check(move(status))
    return plan.nbytes()


cdef extern from *:
    """
    static inline long long plan_length(const tensormem::CopyPlan& plan, int i) {
      return plan.length[static_cast<std::size_t>(i)];
    }
    static tensormem::Status tm_walk(tensormem::Driver* driver, const tensormem::CopyPlan& plan, int level, int outer,
                                     tensormem::CopyBox box, tensormem::StreamId stream) {
      if (level == outer) return driver->copy(box.to, box.from, box.shape, stream);
      const auto at = static_cast<std::size_t>(level);
      for (std::int64_t i = 0; i < plan.length[at]; ++i) {
        tensormem::CopyBox next = box;
        next.to.address += static_cast<std::uint64_t>(i * plan.to_stride[at]);
        next.from.address += static_cast<std::uint64_t>(i * plan.from_stride[at]);
        TM_TRY(tm_walk(driver, plan, level + 1, outer, next, stream));
      }
      return {};
    }
    """
    long long plan_length(const CopyPlan& plan, int i) nogil
    Status _walk "tm_walk"(NativeDriver* driver, const CopyPlan& plan, int level, int outer, CopyBox box,
                           StreamId stream) nogil


cdef int _plan(Tensor to, Tensor source, CopyPlan* plan) except -1:
    cdef int64_t[64] to_steps
    cdef int64_t[64] source_steps
    cdef int64_t item = <int64_t>to.element.width.bytes()
    cdef int64_t[1] whole
    cdef StridedPlace left, right
    cdef int32_t i
    left.address = to.first
    right.address = source.first
    if to.element.width.packed:
        # Elements that share bytes lie without gaps on both sides.
        whole[0] = <int64_t>to.nbytes_()
        check(plan_copy(1, whole, 1, left, right, plan))
        return 0
    for i in range(to.rank):
        to_steps[i] = to.steps()[i] * item
        source_steps[i] = source.steps()[i] * item
    left.byte_strides = to_steps
    right.byte_strides = source_steps
    check(plan_copy(to.rank, to.dims, <uint64_t>item, left, right, plan))
    return 0


def same_layout(Tensor to not None, Tensor source not None):
    """Refuse tensors of different shapes or element types."""
    cdef int32_t i
    cdef bint same = to.rank == source.rank
    if same:
        for i in range(to.rank):
            same = same and to.dims[i] == source.dims[i]
    if not same:
        raise errors.InvalidArgument(f"shapes differ: {to.shape} and {source.shape}")
    if to.element is not source.element:
        raise errors.InvalidArgument(f"element types differ: {to.element.dtype} and {source.element.dtype}; nothing is "
                                     "converted")


def overlap(Tensor a not None, Tensor b not None):
    """Whether the bytes that the two reach meet."""
    cdef uint64_t[2] first
    cdef uint64_t[2] end
    if a.count() == 0 or b.count() == 0:
        return False
    _reach(a, &first[0], &end[0])
    _reach(b, &first[1], &end[1])
    return first[0] < end[1] and first[1] < end[0]


cdef void _reach(Tensor tensor, uint64_t* first, uint64_t* end):
    cdef int64_t below = 0, above = 0, reach
    cdef int64_t item = <int64_t>tensor.element.width.bytes()
    cdef int32_t i
    for i in range(tensor.rank):
        reach = (tensor.dims[i] - 1) * tensor.steps()[i]
        if reach < 0:
            below += reach
        else:
            above += reach
    first[0] = tensor.first + <uint64_t>(below * item)
    end[0] = tensor.first + <uint64_t>((above + 1) * item)
