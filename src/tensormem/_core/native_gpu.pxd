# Owns: the declarations of what only the GPU drivers have.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from tensormem._core.native cimport Driver


cdef extern from "driver/gpu/open.hpp" namespace "tensormem" nogil:
    ctypedef enum DeviceAttribute "tensormem::gpu::DeviceAttribute":
        pass
    cdef struct AttributeNumbers "tensormem::gpu::AttributeNumbers":
        const char* name
    const AttributeNumbers* kDeviceAttributes "tensormem::gpu::kDeviceAttributes"
    size_t kDeviceAttributeCount "tensormem::gpu::kDeviceAttributeCount"
    cdef cppclass CallCount "tensormem::gpu::CallCount":
        string name
        int64_t count
    cdef cppclass GpuApi "tensormem::gpu::GpuApi":
        const char* error_name(int32_t code)
        const char* error_text(int32_t code)
        int32_t version()
        cbool is_simulated()
        vector[const char*] functions() except +MemoryError
        const char* library()
        vector[CallCount] calls()
        cbool attribute(int32_t device, DeviceAttribute attribute, int32_t* value)
    cdef cppclass GpuHeld:
        uint64_t streams
        uint64_t events
        uint64_t pools
        uint64_t reservations
        uint64_t physicals
        uint64_t externals
    cdef cppclass GpuPlatform:
        GpuApi& api()
        int32_t device_count()
        cbool is_lost()
        GpuHeld held()
        void close()
    GpuPlatform* open_gpu_platform(const string& vendor, const string& path, string* why, cbool count)
    Driver* gpu_driver(GpuPlatform& platform, int32_t device)
    cbool share_streams(const Driver& one, const Driver& other)
