// Owns: the CUDA driver functions that tensormem calls: each with the version whose form it is, and whether tensormem
// can do without it. Found once, through cuGetProcAddress, in a library opened at run time. Must not know: what they
// are called for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/cuda/abi.hpp"
#include "driver/gpu/driver_function.hpp"

// name, version of this form, 1 when nothing works without it, signature
#define TM_CUDA_FUNCTIONS(X)                                                                                           \
  X(cuInit, 2000, 1, (unsigned))                                                                                       \
  X(cuDriverGetVersion, 2020, 1, (int*))                                                                               \
  X(cuGetErrorName, 6000, 1, (Result, const char**))                                                                   \
  X(cuGetErrorString, 6000, 1, (Result, const char**))                                                                 \
  X(cuDeviceGetCount, 2000, 1, (int*))                                                                                 \
  X(cuDeviceGetName, 2000, 1, (char*, int, DeviceNumber))                                                              \
  X(cuDeviceTotalMem, 3020, 1, (std::size_t*, DeviceNumber))                                                           \
  X(cuDeviceGetAttribute, 2000, 1, (int*, int, DeviceNumber))                                                          \
  X(cuDevicePrimaryCtxRetain, 7000, 1, (ContextHandle*, DeviceNumber))                                                 \
  X(cuDevicePrimaryCtxRelease, 11000, 1, (DeviceNumber))                                                               \
  X(cuCtxGetCurrent, 4000, 1, (ContextHandle*))                                                                        \
  X(cuCtxPushCurrent, 4000, 1, (ContextHandle))                                                                        \
  X(cuCtxPopCurrent, 4000, 1, (ContextHandle*))                                                                        \
  X(cuCtxGetDevice, 2000, 1, (DeviceNumber*))                                                                          \
  X(cuMemGetInfo, 3020, 1, (std::size_t*, std::size_t*))                                                               \
  X(cuMemAlloc, 3020, 1, (DevicePointer*, std::size_t))                                                                \
  X(cuMemFree, 3020, 1, (DevicePointer))                                                                               \
  X(cuMemHostAlloc, 2020, 1, (void**, std::size_t, unsigned))                                                          \
  X(cuMemFreeHost, 2000, 1, (void*))                                                                                   \
  X(cuMemHostRegister, 6050, 1, (void*, std::size_t, unsigned))                                                        \
  X(cuMemHostUnregister, 4000, 1, (void*))                                                                             \
  X(cuMemAllocManaged, 6000, 0, (DevicePointer*, std::size_t, unsigned))                                               \
  X(cuMemPrefetchAsync, 8000, 0, (DevicePointer, std::size_t, DeviceNumber, StreamHandle))                             \
  X(cuMemAdvise, 8000, 0, (DevicePointer, std::size_t, int, DeviceNumber))                                             \
  X(cuImportExternalMemory, 10000, 0, (ExternalHandle*, const ExternalDescription*))                                   \
  X(cuExternalMemoryGetMappedBuffer, 10000, 0, (DevicePointer*, ExternalHandle, const ExternalBuffer*))                \
  X(cuDestroyExternalMemory, 10000, 0, (ExternalHandle))                                                               \
  X(cuMemAllocFromPoolAsync, 11020, 0, (DevicePointer*, std::size_t, PoolHandle, StreamHandle))                        \
  X(cuMemFreeAsync, 11020, 0, (DevicePointer, StreamHandle))                                                           \
  X(cuMemPoolCreate, 11020, 0, (PoolHandle*, const PoolProperties*))                                                   \
  X(cuMemPoolDestroy, 11020, 0, (PoolHandle))                                                                          \
  X(cuMemPoolSetAttribute, 11020, 0, (PoolHandle, int, void*))                                                         \
  X(cuMemPoolTrimTo, 11020, 0, (PoolHandle, std::size_t))                                                              \
  X(cuMemPoolSetAccess, 11020, 0, (PoolHandle, const AccessDescription*, std::size_t))                                 \
  X(cuDeviceCanAccessPeer, 4000, 0, (int*, DeviceNumber, DeviceNumber))                                                \
  X(cuCtxEnablePeerAccess, 4000, 0, (ContextHandle, unsigned))                                                         \
  X(cuStreamCreate, 2000, 1, (StreamHandle*, unsigned))                                                                \
  X(cuStreamDestroy, 4000, 1, (StreamHandle))                                                                          \
  X(cuStreamSynchronize, 2000, 1, (StreamHandle))                                                                      \
  X(cuStreamQuery, 2000, 1, (StreamHandle))                                                                            \
  X(cuStreamGetCtx, 9020, 1, (StreamHandle, ContextHandle*))                                                           \
  X(cuStreamIsCapturing, 10000, 0, (StreamHandle, int*))                                                               \
  X(cuThreadExchangeStreamCaptureMode, 10010, 0, (int*))                                                               \
  X(cuStreamGetId, 12000, 0, (StreamHandle, std::uint64_t*))                                                           \
  X(cuCtxSynchronize, 2000, 1, ())                                                                                     \
  X(cuStreamWaitEvent, 3020, 1, (StreamHandle, EventPointer, unsigned))                                                \
  X(cuLaunchHostFunc, 10000, 1, (StreamHandle, HostCallback, void*))                                                   \
  X(cuEventCreate, 2000, 1, (EventPointer*, unsigned))                                                                 \
  X(cuEventDestroy, 4000, 1, (EventPointer))                                                                           \
  X(cuEventRecord, 2000, 1, (EventPointer, StreamHandle))                                                              \
  X(cuEventQuery, 2000, 1, (EventPointer))                                                                             \
  X(cuEventSynchronize, 2000, 1, (EventPointer))                                                                       \
  X(cuEventElapsedTime, 2000, 1, (float*, EventPointer, EventPointer))                                                 \
  X(cuMemcpyAsync, 4000, 1, (DevicePointer, DevicePointer, std::size_t, StreamHandle))                                 \
  X(cuMemcpyPeerAsync, 4000, 1,                                                                                        \
    (DevicePointer, ContextHandle, DevicePointer, ContextHandle, std::size_t, StreamHandle))                           \
  X(cuMemcpy3DPeerAsync, 4000, 1, (const Copy3D*, StreamHandle))                                                       \
  X(cuPointerGetAttributes, 7000, 1, (unsigned, int*, void**, DevicePointer))                                          \
  X(cuMemcpy2DAsync, 3020, 1, (const Copy2D*, StreamHandle))                                                           \
  X(cuMemcpy3DAsync, 3020, 1, (const Copy3D*, StreamHandle))                                                           \
  X(cuMemsetD8Async, 3020, 1, (DevicePointer, unsigned char, std::size_t, StreamHandle))                               \
  X(cuMemsetD16Async, 3020, 1, (DevicePointer, unsigned short, std::size_t, StreamHandle))                             \
  X(cuMemsetD32Async, 3020, 1, (DevicePointer, unsigned, std::size_t, StreamHandle))                                   \
  X(cuMemsetD2D8Async, 3020, 1, (DevicePointer, std::size_t, unsigned char, std::size_t, std::size_t, StreamHandle))   \
  X(cuMemsetD2D16Async, 3020, 1, (DevicePointer, std::size_t, unsigned short, std::size_t, std::size_t, StreamHandle)) \
  X(cuMemsetD2D32Async, 3020, 1, (DevicePointer, std::size_t, unsigned, std::size_t, std::size_t, StreamHandle))       \
  X(cuMemGetAllocationGranularity, 10020, 0, (std::size_t*, const AllocationProperties*, int))                         \
  X(cuMemAddressReserve, 10020, 0, (DevicePointer*, std::size_t, std::size_t, DevicePointer, std::uint64_t))           \
  X(cuMemAddressFree, 10020, 0, (DevicePointer, std::size_t))                                                          \
  X(cuMemCreate, 10020, 0, (AllocationHandle*, std::size_t, const AllocationProperties*, std::uint64_t))               \
  X(cuMemRelease, 10020, 0, (AllocationHandle))                                                                        \
  X(cuMemMap, 10020, 0, (DevicePointer, std::size_t, std::size_t, AllocationHandle, std::uint64_t))                    \
  X(cuMemUnmap, 10020, 0, (DevicePointer, std::size_t))                                                                \
  X(cuMemSetAccess, 10020, 0, (DevicePointer, std::size_t, const AccessDescription*, std::size_t))                     \
  X(cuMemExportToShareableHandle, 10020, 0, (void*, AllocationHandle, int, std::uint64_t))                             \
  X(cuMemImportFromShareableHandle, 10020, 0, (AllocationHandle*, void*, int))

namespace tensormem::cuda {

struct FunctionTable {
#define TM_FIELD(name, version, needed, signature) gpu::DriverFunction<Result signature> name;
  TM_CUDA_FUNCTIONS(TM_FIELD)
#undef TM_FIELD
  // The later form of cuMemAdvise, which says a place instead of a device number; drivers before 12.2 lack it.
  gpu::DriverFunction<Result(DevicePointer, std::size_t, int, Location)> cuMemAdvise_at;

  bool simulated = false;
  int driver_version = 0;
  std::string library;                           // the file
  std::shared_ptr<gpu::CallCounter[]> counters;  // null: nothing is counted
};

inline constexpr int kOldestDriver = 11030;  // the first that has cuGetProcAddress

inline constexpr const char* kFunctionNames[] = {
#define TM_NAME(name, version, needed, signature) #name,
    TM_CUDA_FUNCTIONS(TM_NAME)
#undef TM_NAME
};

// Opens the library (a path, or "" for the system's) and fills the table, with its calls counted if asked. False, and
// why, when it cannot be used.
bool load_functions(const std::string& path, bool count, FunctionTable* table, std::string* why);
std::vector<gpu::CallCount> calls_of(const FunctionTable& table);

}  // namespace tensormem::cuda
