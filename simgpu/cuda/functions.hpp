// Owns: the list of CUDA driver functions that the simulated GPU serves, each with the driver version that brought this
// form of it, its exported name and its signature. The table behind cuGetProcAddress and the declarations come from it.
// Must not know: what they do.
#pragma once

#include "driver/cuda/abi.hpp"

namespace tensormem::cuda {
using GraphHandle = void*;  // of a graph, or of what was made of one to be launched

// CUipcMemHandle and CUipcEventHandle.
struct ProcessHandle {
  char bytes[64];
};
}  // namespace tensormem::cuda

// name asked for, version, exported name, signature
#define SIM_CUDA_FUNCTIONS(X)                                                                                          \
  X(cuInit, 2000, cuInit, (unsigned flags))                                                                            \
  X(cuDriverGetVersion, 2020, cuDriverGetVersion, (int* version))                                                      \
  X(cuGetErrorName, 6000, cuGetErrorName, (Result error, const char** text))                                           \
  X(cuGetErrorString, 6000, cuGetErrorString, (Result error, const char** text))                                       \
  X(cuGetProcAddress, 12000, cuGetProcAddress_v2,                                                                      \
    (const char* symbol, void** function, int version, std::uint64_t flags, int* status))                              \
  X(cuGetProcAddress, 11030, cuGetProcAddress,                                                                         \
    (const char* symbol, void** function, int version, std::uint64_t flags))                                           \
  X(cuDeviceGet, 2000, cuDeviceGet, (DeviceNumber * device, int ordinal))                                              \
  X(cuDeviceGetCount, 2000, cuDeviceGetCount, (int* count))                                                            \
  X(cuDeviceGetName, 2000, cuDeviceGetName, (char* name, int length, DeviceNumber device))                             \
  X(cuDeviceGetUuid, 9020, cuDeviceGetUuid, (void* uuid, DeviceNumber device))                                         \
  X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, (void* uuid, DeviceNumber device))                                     \
  X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2, (std::size_t* bytes, DeviceNumber device))                            \
  X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, (int* value, int attribute, DeviceNumber device))                \
  X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId, (char* text, int length, DeviceNumber device))                     \
  X(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer, (int* can, DeviceNumber device, DeviceNumber peer))            \
  X(cuDeviceGetP2PAttribute, 8000, cuDeviceGetP2PAttribute,                                                            \
    (int* value, int attribute, DeviceNumber device, DeviceNumber peer))                                               \
  X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, (ContextHandle * context, DeviceNumber device))          \
  X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, (DeviceNumber device))                             \
  X(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2, (DeviceNumber device))                                 \
  X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2, (DeviceNumber device, unsigned flags))           \
  X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState, (DeviceNumber device, unsigned* flags, int* active)) \
  X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, (ContextHandle context))                                              \
  X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, (ContextHandle * context))                                              \
  X(cuCtxSetCurrent, 4000, cuCtxSetCurrent, (ContextHandle context))                                                   \
  X(cuCtxGetCurrent, 4000, cuCtxGetCurrent, (ContextHandle * context))                                                 \
  X(cuCtxGetDevice, 2000, cuCtxGetDevice, (DeviceNumber * device))                                                     \
  X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2, (DeviceNumber * device, ContextHandle context))                          \
  X(cuCtxGetFlags, 7000, cuCtxGetFlags, (unsigned* flags))                                                             \
  X(cuCtxGetId, 12000, cuCtxGetId, (ContextHandle context, std::uint64_t* id))                                         \
  X(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion, (ContextHandle context, unsigned* version))                          \
  X(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange, (int* least, int* greatest))                       \
  X(cuCtxSynchronize, 2000, cuCtxSynchronize, ())                                                                      \
  X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, (ContextHandle context))                                             \
  X(cuCtxCreate, 3020, cuCtxCreate_v2, (ContextHandle * context, unsigned flags, DeviceNumber device))                 \
  X(cuCtxCreate, 12050, cuCtxCreate_v4,                                                                                \
    (ContextHandle * context, void* parameters, unsigned flags, DeviceNumber device))                                  \
  X(cuCtxDestroy, 4000, cuCtxDestroy_v2, (ContextHandle context))                                                      \
  X(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess, (ContextHandle peer, unsigned flags))                          \
  X(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess, (ContextHandle peer))                                        \
  X(cuMemGetInfo, 3020, cuMemGetInfo_v2, (std::size_t* free, std::size_t* total))                                      \
  X(cuMemAlloc, 3020, cuMemAlloc_v2, (DevicePointer * address, std::size_t nbytes))                                    \
  X(cuMemAllocPitch, 3020, cuMemAllocPitch_v2,                                                                         \
    (DevicePointer * address, std::size_t* pitch, std::size_t width, std::size_t height, unsigned element))            \
  X(cuMemFree, 3020, cuMemFree_v2, (DevicePointer address))                                                            \
  X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2,                                                               \
    (DevicePointer * start, std::size_t* size, DevicePointer address))                                                 \
  X(cuMemHostAlloc, 2020, cuMemHostAlloc, (void** address, std::size_t nbytes, unsigned flags))                        \
  X(cuMemAllocHost, 3020, cuMemAllocHost_v2, (void** address, std::size_t nbytes))                                     \
  X(cuMemFreeHost, 2000, cuMemFreeHost, (void* address))                                                               \
  X(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2,                                                     \
    (DevicePointer * device_address, void* address, unsigned flags))                                                   \
  X(cuMemHostGetFlags, 2030, cuMemHostGetFlags, (unsigned* flags, void* address))                                      \
  X(cuMemHostRegister, 6050, cuMemHostRegister_v2, (void* address, std::size_t nbytes, unsigned flags))                \
  X(cuMemHostUnregister, 4000, cuMemHostUnregister, (void* address))                                                   \
  X(cuMemAllocManaged, 6000, cuMemAllocManaged, (DevicePointer * address, std::size_t nbytes, unsigned flags))         \
  X(cuMemAdvise, 8000, cuMemAdvise, (DevicePointer address, std::size_t nbytes, int advice, DeviceNumber device))      \
  X(cuMemAdvise, 12020, cuMemAdvise_v2, (DevicePointer address, std::size_t nbytes, int advice, Location where))       \
  X(cuImportExternalMemory, 10000, cuImportExternalMemory,                                                             \
    (ExternalHandle * external, const ExternalDescription* description))                                               \
  X(cuExternalMemoryGetMappedBuffer, 10000, cuExternalMemoryGetMappedBuffer,                                           \
    (DevicePointer * address, ExternalHandle external, const ExternalBuffer* buffer))                                  \
  X(cuDestroyExternalMemory, 10000, cuDestroyExternalMemory, (ExternalHandle external))                                \
  X(cuMemPrefetchAsync, 8000, cuMemPrefetchAsync,                                                                      \
    (DevicePointer address, std::size_t nbytes, DeviceNumber device, StreamHandle stream))                             \
  X(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2,                                                                  \
    (DevicePointer address, std::size_t nbytes, Location where, unsigned flags, StreamHandle stream))                  \
  X(cuMemcpy, 4000, cuMemcpy, (DevicePointer to, DevicePointer from, std::size_t nbytes))                              \
  X(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, (DevicePointer to, const void* from, std::size_t nbytes))                     \
  X(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, (void* to, DevicePointer from, std::size_t nbytes))                           \
  X(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, (DevicePointer to, DevicePointer from, std::size_t nbytes))                   \
  X(cuMemcpyAsync, 4000, cuMemcpyAsync,                                                                                \
    (DevicePointer to, DevicePointer from, std::size_t nbytes, StreamHandle stream))                                   \
  X(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2,                                                                     \
    (DevicePointer to, const void* from, std::size_t nbytes, StreamHandle stream))                                     \
  X(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2,                                                                     \
    (void* to, DevicePointer from, std::size_t nbytes, StreamHandle stream))                                           \
  X(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2,                                                                     \
    (DevicePointer to, DevicePointer from, std::size_t nbytes, StreamHandle stream))                                   \
  X(cuMemcpyPeer, 4000, cuMemcpyPeer,                                                                                  \
    (DevicePointer to, ContextHandle to_context, DevicePointer from, ContextHandle from_context, std::size_t nbytes))  \
  X(cuMemcpyPeerAsync, 4000, cuMemcpyPeerAsync,                                                                        \
    (DevicePointer to, ContextHandle to_context, DevicePointer from, ContextHandle from_context, std::size_t nbytes,   \
     StreamHandle stream))                                                                                             \
  X(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2, (const Copy2D* copy, StreamHandle stream))                              \
  X(cuMemcpy2D, 3020, cuMemcpy2D_v2, (const Copy2D* copy))                                                             \
  X(cuMemcpy3DAsync, 3020, cuMemcpy3DAsync_v2, (const Copy3D* copy, StreamHandle stream))                              \
  X(cuMemcpy3D, 3020, cuMemcpy3D_v2, (const Copy3D* copy))                                                             \
  X(cuMemcpy3DPeerAsync, 4000, cuMemcpy3DPeerAsync, (const Copy3D* copy, StreamHandle stream))                         \
  X(cuMemsetD8, 3020, cuMemsetD8_v2, (DevicePointer to, unsigned char value, std::size_t count))                       \
  X(cuMemsetD16, 3020, cuMemsetD16_v2, (DevicePointer to, unsigned short value, std::size_t count))                    \
  X(cuMemsetD32, 3020, cuMemsetD32_v2, (DevicePointer to, unsigned value, std::size_t count))                          \
  X(cuMemsetD8Async, 3020, cuMemsetD8Async,                                                                            \
    (DevicePointer to, unsigned char value, std::size_t count, StreamHandle stream))                                   \
  X(cuMemsetD16Async, 3020, cuMemsetD16Async,                                                                          \
    (DevicePointer to, unsigned short value, std::size_t count, StreamHandle stream))                                  \
  X(cuMemsetD32Async, 3020, cuMemsetD32Async,                                                                          \
    (DevicePointer to, unsigned value, std::size_t count, StreamHandle stream))                                        \
  X(cuMemsetD2D8Async, 3020, cuMemsetD2D8Async,                                                                        \
    (DevicePointer to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height,                  \
     StreamHandle stream))                                                                                             \
  X(cuMemsetD2D16Async, 3020, cuMemsetD2D16Async,                                                                      \
    (DevicePointer to, std::size_t pitch, unsigned short value, std::size_t width, std::size_t height,                 \
     StreamHandle stream))                                                                                             \
  X(cuMemsetD2D32Async, 3020, cuMemsetD2D32Async,                                                                      \
    (DevicePointer to, std::size_t pitch, unsigned value, std::size_t width, std::size_t height, StreamHandle stream)) \
  X(cuPointerGetAttribute, 4000, cuPointerGetAttribute, (void* data, int attribute, DevicePointer address))            \
  X(cuPointerGetAttributes, 7000, cuPointerGetAttributes,                                                              \
    (unsigned count, int* attributes, void** data, DevicePointer address))                                             \
  X(cuStreamCreate, 2000, cuStreamCreate, (StreamHandle * stream, unsigned flags))                                     \
  X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority,                                                      \
    (StreamHandle * stream, unsigned flags, int priority))                                                             \
  X(cuStreamDestroy, 4000, cuStreamDestroy_v2, (StreamHandle stream))                                                  \
  X(cuStreamSynchronize, 2000, cuStreamSynchronize, (StreamHandle stream))                                             \
  X(cuStreamQuery, 2000, cuStreamQuery, (StreamHandle stream))                                                         \
  X(cuStreamGetFlags, 5050, cuStreamGetFlags, (StreamHandle stream, unsigned* flags))                                  \
  X(cuStreamGetPriority, 5050, cuStreamGetPriority, (StreamHandle stream, int* priority))                              \
  X(cuStreamGetCtx, 9020, cuStreamGetCtx, (StreamHandle stream, ContextHandle * context))                              \
  X(cuStreamGetCtx, 12050, cuStreamGetCtx_v2, (StreamHandle stream, ContextHandle * context, void** green))            \
  X(cuStreamGetDevice, 12080, cuStreamGetDevice, (StreamHandle stream, DeviceNumber * device))                         \
  X(cuStreamGetId, 12000, cuStreamGetId, (StreamHandle stream, std::uint64_t* id))                                     \
  X(cuStreamIsCapturing, 10000, cuStreamIsCapturing, (StreamHandle stream, int* status))                               \
  X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, (StreamHandle stream, int mode))                             \
  X(cuStreamEndCapture, 10000, cuStreamEndCapture, (StreamHandle stream, GraphHandle * graph))                         \
  X(cuStreamGetCaptureInfo, 10010, cuStreamGetCaptureInfo, (StreamHandle stream, int* status, std::uint64_t* id))      \
  X(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2,                                                          \
    (StreamHandle stream, int* status, std::uint64_t* id, GraphHandle* graph, const void** dependencies,               \
     std::size_t* count))                                                                                              \
  X(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3,                                                          \
    (StreamHandle stream, int* status, std::uint64_t* id, GraphHandle* graph, const void** dependencies,               \
     const void** edges, std::size_t* count))                                                                          \
  X(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode, (int* mode))                          \
  X(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags,                                                            \
    (GraphHandle * executable, GraphHandle graph, std::uint64_t flags))                                                \
  X(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags,                                                   \
    (GraphHandle * executable, GraphHandle graph, std::uint64_t flags))                                                \
  X(cuGraphLaunch, 10000, cuGraphLaunch, (GraphHandle executable, StreamHandle stream))                                \
  X(cuGraphExecDestroy, 10000, cuGraphExecDestroy, (GraphHandle executable))                                           \
  X(cuGraphDestroy, 10000, cuGraphDestroy, (GraphHandle graph))                                                        \
  X(cuStreamWaitEvent, 3020, cuStreamWaitEvent, (StreamHandle stream, EventPointer event, unsigned flags))             \
  X(cuLaunchHostFunc, 10000, cuLaunchHostFunc, (StreamHandle stream, HostCallback function, void* argument))           \
  X(cuEventCreate, 2000, cuEventCreate, (EventPointer * event, unsigned flags))                                        \
  X(cuEventDestroy, 4000, cuEventDestroy_v2, (EventPointer event))                                                     \
  X(cuEventRecord, 2000, cuEventRecord, (EventPointer event, StreamHandle stream))                                     \
  X(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags, (EventPointer event, StreamHandle stream, unsigned flags))  \
  X(cuEventQuery, 2000, cuEventQuery, (EventPointer event))                                                            \
  X(cuEventSynchronize, 2000, cuEventSynchronize, (EventPointer event))                                                \
  X(cuEventElapsedTime, 2000, cuEventElapsedTime, (float* milliseconds, EventPointer start, EventPointer end))         \
  X(cuEventElapsedTime, 12080, cuEventElapsedTime_v2, (float* milliseconds, EventPointer start, EventPointer end))     \
  X(cuIpcGetEventHandle, 4010, cuIpcGetEventHandle, (ProcessHandle * handle, EventPointer event))                      \
  X(cuIpcOpenEventHandle, 4010, cuIpcOpenEventHandle, (EventPointer * event, ProcessHandle handle))                    \
  X(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle, (ProcessHandle * handle, DevicePointer address))                       \
  X(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2, (DevicePointer * address, ProcessHandle handle, unsigned flags)) \
  X(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle, (DevicePointer address))                                           \
  X(cuMemcpyBatchAsync, 13000, cuMemcpyBatchAsync_v2,                                                                  \
    (const DevicePointer* to, const DevicePointer* from, const std::size_t* nbytes, std::size_t count,                 \
     const void* attributes, const std::size_t* from_copy, std::size_t attribute_count, StreamHandle stream))          \
  X(cuMemPrefetchBatchAsync, 13000, cuMemPrefetchBatchAsync,                                                           \
    (DevicePointer * addresses, std::size_t* sizes, std::size_t count, Location* places, std::size_t* from_range,      \
     std::size_t place_count, std::uint64_t flags, StreamHandle stream))                                               \
  X(cuMemDiscardBatchAsync, 13000, cuMemDiscardBatchAsync,                                                             \
    (DevicePointer * addresses, std::size_t* sizes, std::size_t count, std::uint64_t flags, StreamHandle stream))      \
  X(cuMemDiscardAndPrefetchBatchAsync, 13000, cuMemDiscardAndPrefetchBatchAsync,                                       \
    (DevicePointer * addresses, std::size_t* sizes, std::size_t count, Location* places, std::size_t* from_range,      \
     std::size_t place_count, std::uint64_t flags, StreamHandle stream))                                               \
  X(cuMemAllocAsync, 11020, cuMemAllocAsync, (DevicePointer * address, std::size_t nbytes, StreamHandle stream))       \
  X(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync,                                                           \
    (DevicePointer * address, std::size_t nbytes, PoolHandle pool, StreamHandle stream))                               \
  X(cuMemFreeAsync, 11020, cuMemFreeAsync, (DevicePointer address, StreamHandle stream))                               \
  X(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool, (PoolHandle * pool, DeviceNumber device))             \
  X(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool, (PoolHandle * pool, DeviceNumber device))                           \
  X(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool, (DeviceNumber device, PoolHandle pool))                             \
  X(cuMemPoolCreate, 11020, cuMemPoolCreate, (PoolHandle * pool, const PoolProperties* properties))                    \
  X(cuMemPoolDestroy, 11020, cuMemPoolDestroy, (PoolHandle pool))                                                      \
  X(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, (PoolHandle pool, std::size_t keep_bytes))                                \
  X(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute, (PoolHandle pool, int attribute, void* value))                \
  X(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute, (PoolHandle pool, int attribute, void* value))                \
  X(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess,                                                                     \
    (PoolHandle pool, const AccessDescription* rights, std::size_t count))                                             \
  X(cuMemGetDefaultMemPool, 13000, cuMemGetDefaultMemPool, (PoolHandle * pool, const Location* where, int type))       \
  X(cuMemGetMemPool, 13000, cuMemGetMemPool, (PoolHandle * pool, const Location* where, int type))                     \
  X(cuMemSetMemPool, 13000, cuMemSetMemPool, (const Location* where, int type, PoolHandle pool))                       \
  X(cuMemPoolExportToShareableHandle, 11020, cuMemPoolExportToShareableHandle,                                         \
    (void* shareable, PoolHandle pool, int type, std::uint64_t flags))                                                 \
  X(cuMemPoolImportFromShareableHandle, 11020, cuMemPoolImportFromShareableHandle,                                     \
    (PoolHandle * pool, void* shareable, int type, std::uint64_t flags))                                               \
  X(cuMemPoolExportPointer, 11020, cuMemPoolExportPointer, (void* note, DevicePointer address))                        \
  X(cuMemPoolImportPointer, 11020, cuMemPoolImportPointer, (DevicePointer * address, PoolHandle pool, void* note))     \
  X(cuMemRangeGetAttribute, 8000, cuMemRangeGetAttribute,                                                              \
    (void* data, std::size_t data_bytes, int attribute, DevicePointer address, std::size_t nbytes))                    \
  X(cuMemRangeGetAttributes, 8000, cuMemRangeGetAttributes,                                                            \
    (void** data, std::size_t* data_bytes, int* attributes, std::size_t count, DevicePointer address,                  \
     std::size_t nbytes))                                                                                              \
  X(cuMemPoolGetAccess, 11020, cuMemPoolGetAccess, (int* flags, PoolHandle pool, Location* where))                     \
  X(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity,                                               \
    (std::size_t* granularity, const AllocationProperties* properties, int option))                                    \
  X(cuMemAddressReserve, 10020, cuMemAddressReserve,                                                                   \
    (DevicePointer * address, std::size_t size, std::size_t alignment, DevicePointer wish, std::uint64_t flags))       \
  X(cuMemAddressFree, 10020, cuMemAddressFree, (DevicePointer address, std::size_t size))                              \
  X(cuMemCreate, 10020, cuMemCreate,                                                                                   \
    (AllocationHandle * handle, std::size_t size, const AllocationProperties* properties, std::uint64_t flags))        \
  X(cuMemRelease, 10020, cuMemRelease, (AllocationHandle handle))                                                      \
  X(cuMemMap, 10020, cuMemMap,                                                                                         \
    (DevicePointer address, std::size_t size, std::size_t offset, AllocationHandle handle, std::uint64_t flags))       \
  X(cuMemUnmap, 10020, cuMemUnmap, (DevicePointer address, std::size_t size))                                          \
  X(cuMemSetAccess, 10020, cuMemSetAccess,                                                                             \
    (DevicePointer address, std::size_t size, const AccessDescription* rights, std::size_t count))                     \
  X(cuMemGetAccess, 10020, cuMemGetAccess, (std::uint64_t* flags, const Location* where, DevicePointer address))       \
  X(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle,                                                 \
    (void* shareable, AllocationHandle handle, int type, std::uint64_t flags))                                         \
  X(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle,                                             \
    (AllocationHandle * handle, void* shareable, int type))                                                            \
  X(cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle,                             \
    (AllocationProperties * properties, AllocationHandle handle))                                                      \
  X(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle, (AllocationHandle * handle, void* address))

namespace tensormem::cuda {

extern "C" {
#define SIM_DECLARE(asked, version, exported, signature) [[gnu::visibility("default")]] Result exported signature;
SIM_CUDA_FUNCTIONS(SIM_DECLARE)
#undef SIM_DECLARE
}

}  // namespace tensormem::cuda
