# Owns: the declarations of native/tensor/ for the Cython modules of this package. No code.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool

from tensormem._core.native cimport CopyShape, Driver, Pitched, Status, StreamId


cdef extern from "tensor/storage_id.hpp" namespace "tensormem" nogil:
    uint64_t next_storage_id()


cdef extern from "base/status.hpp" namespace "tensormem" nogil:
    cdef enum class Code(uint8_t):
        invalid_argument
        invalid_size
        invalid_dlpack


cdef extern from "tensor/layout.hpp" namespace "tensormem" nogil:
    const int32_t kMaxDims
    cdef cppclass ElementWidth:
        uint32_t bits
        cbool packed
        uint64_t bytes()
    cdef cppclass Reach:
        uint64_t count
        uint64_t below
        uint64_t above
    Status measure_layout(int32_t ndim, const int64_t* shape, const int64_t* strides, ElementWidth width, Code code,
                          Reach* reach)
    cbool is_row_major(int32_t ndim, const int64_t* shape, const int64_t* strides)
    void row_major_strides(int32_t ndim, const int64_t* shape, int64_t* strides)
    cbool reshape_strides(int32_t ndim, const int64_t* shape, const int64_t* strides, int32_t new_ndim,
                          const int64_t* new_shape, int64_t* new_strides)


cdef extern from "tensor/dlpack.hpp" namespace "tensormem::dlpack" nogil:
    const uint32_t kMajor
    const uint32_t kMinor
    const uint64_t kReadOnly
    const uint64_t kIsCopied
    const uint64_t kSubbytePadded
    cdef cppclass Version:
        uint32_t major
        uint32_t minor
    cdef cppclass Device:
        int32_t device_type
        int32_t device_id
    cdef cppclass DataType:
        uint8_t code
        uint8_t bits
        uint16_t lanes
    cdef cppclass DLTensor "tensormem::dlpack::Tensor":
        void* data
        Device device
        int32_t ndim
        DataType dtype
        int64_t* shape
        int64_t* strides
        uint64_t byte_offset
    cdef cppclass ManagedTensor:
        DLTensor dl_tensor
        void* manager_ctx
        void (*deleter)(ManagedTensor*) noexcept nogil
    cdef cppclass ManagedTensorVersioned:
        Version version
        void* manager_ctx
        void (*deleter)(ManagedTensorVersioned*) noexcept nogil
        uint64_t flags
        DLTensor dl_tensor
    cdef cppclass ExchangeApiHeader:
        Version version
        ExchangeApiHeader* prev_api
    ctypedef void (*SetError)(void*, const char*, const char*) noexcept nogil


# Its functions are called with the GIL held.
cdef extern from "tensor/dlpack.hpp" namespace "tensormem::dlpack":
    cdef cppclass ExchangeApi:
        ExchangeApiHeader header
        int (*managed_tensor_allocator)(DLTensor*, ManagedTensorVersioned**, void*, SetError) noexcept
        int (*managed_tensor_from_py_object_no_sync)(void*, ManagedTensorVersioned**) noexcept
        int (*managed_tensor_to_py_object_no_sync)(ManagedTensorVersioned*, void**) noexcept
        int (*dltensor_from_py_object_no_sync)(void*, DLTensor*) noexcept
        int (*current_work_stream)(int32_t, int32_t, void**) noexcept


cdef extern from "tensor/dlpack_check.hpp" namespace "tensormem::dlpack" nogil:
    cdef cppclass Checked:
        uint64_t first
        uint64_t lowest
        uint64_t nbytes
        ElementWidth width
    Status check_tensor(const DLTensor& tensor, uint64_t flags, Checked* checked)
    Status check_managed(const ManagedTensorVersioned& managed, Checked* checked)


cdef extern from "tensor/copy_plan.hpp" namespace "tensormem" nogil:
    cdef cppclass StridedPlace:
        uint64_t address
        const int64_t* byte_strides
    cdef cppclass CopyPlan:
        CopyPlan()
        CopyPlan(const CopyPlan& other)
        uint64_t to
        uint64_t run
        int32_t ndim
        uint64_t nbytes()
    cdef cppclass CopyBox:
        Pitched to
        Pitched source "from"
        CopyShape shape
    Status plan_copy(int32_t ndim, const int64_t* shape, uint64_t item_bytes, const StridedPlace& to,
                     const StridedPlace& source, CopyPlan* plan)
    cbool as_box(CopyPlan& plan, CopyBox* box, int32_t* outer)


cdef extern from "tensor/fill.hpp" namespace "tensormem" nogil:
    cdef cppclass FillRequest:
        int32_t ndim
        const int64_t* shape
        StridedPlace to
        int32_t device
        const uint8_t* element
        uint64_t item_bytes
    Status fill_layout(Driver& driver, const FillRequest& request, uint64_t most_calls, StreamId stream, cbool* filled)


cdef extern from "tensor/host_copy.hpp" namespace "tensormem" nogil:
    void run_on_host(const CopyPlan& plan)
