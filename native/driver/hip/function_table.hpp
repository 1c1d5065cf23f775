// Owns: the HIP functions that tensormem calls, and whether it can do without one. Found once in a library opened at
// run time. HIP's numbers and layouts are CUDA's wherever both have them (checked against AMD's own Python package), so
// the types of cuda/abi.hpp serve both. Must not know: what they are called for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/cuda/abi.hpp"
#include "driver/gpu/driver_function.hpp"

// name, 1 when nothing works without it, answer, signature
#define TM_HIP_FUNCTIONS(X)                                                                          \
  X(hipInit, 1, Result, (unsigned))                                                                  \
  X(hipDriverGetVersion, 1, Result, (int*))                                                          \
  X(hipGetErrorName, 1, const char*, (Result))                                                       \
  X(hipGetErrorString, 1, const char*, (Result))                                                     \
  X(hipGetDeviceCount, 1, Result, (int*))                                                            \
  X(hipGetDevice, 1, Result, (int*))                                                                 \
  X(hipSetDevice, 1, Result, (int))                                                                  \
  X(hipDeviceGetName, 1, Result, (char*, int, int))                                                  \
  X(hipDeviceTotalMem, 1, Result, (std::size_t*, int))                                               \
  X(hipDeviceGetAttribute, 1, Result, (int*, int, int))                                              \
  X(hipMemGetInfo, 1, Result, (std::size_t*, std::size_t*))                                          \
  X(hipMalloc, 1, Result, (void**, std::size_t))                                                     \
  X(hipFree, 1, Result, (void*))                                                                     \
  X(hipHostMalloc, 1, Result, (void**, std::size_t, unsigned))                                       \
  X(hipHostFree, 1, Result, (void*))                                                                 \
  X(hipHostRegister, 1, Result, (void*, std::size_t, unsigned))                                      \
  X(hipHostUnregister, 1, Result, (void*))                                                           \
  X(hipMallocManaged, 0, Result, (void**, std::size_t, unsigned))                                    \
  X(hipMemPrefetchAsync, 0, Result, (const void*, std::size_t, int, StreamHandle))                   \
  X(hipMemAdvise, 0, Result, (const void*, std::size_t, int, int))                                   \
  X(hipImportExternalMemory, 0, Result, (ExternalHandle*, const ExternalDescription*))               \
  X(hipExternalMemoryGetMappedBuffer, 0, Result, (void**, ExternalHandle, const ExternalBuffer*))    \
  X(hipDestroyExternalMemory, 0, Result, (ExternalHandle))                                           \
  X(hipMallocFromPoolAsync, 0, Result, (void**, std::size_t, PoolHandle, StreamHandle))              \
  X(hipFreeAsync, 0, Result, (void*, StreamHandle))                                                  \
  X(hipMemPoolCreate, 0, Result, (PoolHandle*, const PoolProperties*))                               \
  X(hipMemPoolDestroy, 0, Result, (PoolHandle))                                                      \
  X(hipMemPoolSetAttribute, 0, Result, (PoolHandle, int, void*))                                     \
  X(hipMemPoolTrimTo, 0, Result, (PoolHandle, std::size_t))                                          \
  X(hipMemPoolSetAccess, 0, Result, (PoolHandle, const AccessDescription*, std::size_t))             \
  X(hipDeviceCanAccessPeer, 0, Result, (int*, int, int))                                             \
  X(hipDeviceEnablePeerAccess, 0, Result, (int, unsigned))                                           \
  X(hipStreamCreateWithFlags, 1, Result, (StreamHandle*, unsigned))                                  \
  X(hipStreamDestroy, 1, Result, (StreamHandle))                                                     \
  X(hipStreamSynchronize, 1, Result, (StreamHandle))                                                 \
  X(hipStreamQuery, 1, Result, (StreamHandle))                                                       \
  X(hipStreamGetDevice, 0, Result, (StreamHandle, int*))                                             \
  X(hipStreamIsCapturing, 0, Result, (StreamHandle, int*))                                           \
  X(hipThreadExchangeStreamCaptureMode, 0, Result, (int*))                                           \
  X(hipDeviceSynchronize, 1, Result, ())                                                             \
  X(hipStreamWaitEvent, 1, Result, (StreamHandle, EventPointer, unsigned))                           \
  X(hipLaunchHostFunc, 1, Result, (StreamHandle, HostCallback, void*))                               \
  X(hipEventCreateWithFlags, 1, Result, (EventPointer*, unsigned))                                   \
  X(hipEventDestroy, 1, Result, (EventPointer))                                                      \
  X(hipEventRecord, 1, Result, (EventPointer, StreamHandle))                                         \
  X(hipEventQuery, 1, Result, (EventPointer))                                                        \
  X(hipEventSynchronize, 1, Result, (EventPointer))                                                  \
  X(hipEventElapsedTime, 1, Result, (float*, EventPointer, EventPointer))                            \
  X(hipMemcpyAsync, 1, Result, (void*, const void*, std::size_t, int, StreamHandle))                 \
  X(hipMemcpyPeerAsync, 1, Result, (void*, int, const void*, int, std::size_t, StreamHandle))        \
  X(hipPointerGetAttribute, 0, Result, (void*, int, void*))                                          \
  X(hipMemcpy2DAsync, 1, Result,                                                                     \
    (void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, int, StreamHandle))     \
  X(hipMemsetD8Async, 1, Result, (void*, unsigned char, std::size_t, StreamHandle))                  \
  X(hipMemsetD16Async, 1, Result, (void*, unsigned short, std::size_t, StreamHandle))                \
  X(hipMemsetD32Async, 1, Result, (void*, int, std::size_t, StreamHandle))                           \
  X(hipMemset2DAsync, 1, Result, (void*, std::size_t, int, std::size_t, std::size_t, StreamHandle))  \
  X(hipMemGetAllocationGranularity, 0, Result, (std::size_t*, const AllocationProperties*, int))     \
  X(hipMemAddressReserve, 0, Result, (void**, std::size_t, std::size_t, void*, unsigned long long))  \
  X(hipMemAddressFree, 0, Result, (void*, std::size_t))                                              \
  X(hipMemCreate, 0, Result, (void**, std::size_t, const AllocationProperties*, unsigned long long)) \
  X(hipMemRelease, 0, Result, (void*))                                                               \
  X(hipMemMap, 0, Result, (void*, std::size_t, std::size_t, void*, unsigned long long))              \
  X(hipMemUnmap, 0, Result, (void*, std::size_t))                                                    \
  X(hipMemSetAccess, 0, Result, (void*, std::size_t, const AccessDescription*, std::size_t))         \
  X(hipMemExportToShareableHandle, 0, Result, (void*, void*, int, unsigned long long))               \
  X(hipMemImportFromShareableHandle, 0, Result, (void**, void*, int))

namespace tensormem::hip {

using cuda::AccessDescription;
using cuda::AllocationProperties;
using cuda::EventPointer;
using cuda::ExternalBuffer;
using cuda::ExternalDescription;
using cuda::ExternalHandle;
using cuda::HostCallback;
using cuda::PoolHandle;
using cuda::PoolProperties;
using cuda::Result;
using cuda::StreamHandle;

struct FunctionTable {
#define TM_FIELD(name, needed, answer, signature) gpu::DriverFunction<answer signature> name;
  TM_HIP_FUNCTIONS(TM_FIELD)
#undef TM_FIELD

  bool simulated = false;
  int driver_version = 0;
  std::string library;                           // the file
  std::shared_ptr<gpu::CallCounter[]> counters;  // null: nothing is counted
};

inline constexpr const char* kFunctionNames[] = {
#define TM_NAME(name, needed, answer, signature) #name,
    TM_HIP_FUNCTIONS(TM_NAME)
#undef TM_NAME
};

// Opens the library (a path, or "" for the system's) and fills the table, with its calls counted if asked. False, and
// why, when it cannot be used.
bool load_functions(const std::string& path, bool count, FunctionTable* table, std::string* why);
std::vector<gpu::CallCount> calls_of(const FunctionTable& table);

}  // namespace tensormem::hip
