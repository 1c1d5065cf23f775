// Owns: the HIP functions that the simulated GPU serves, with their signatures. HIP's numbers, layouts of requests and
// meanings of flags are those of CUDA wherever both have them, so the types are shared.
// Must not know: what they do.
#pragma once

#include "driver/cuda/abi.hpp"

extern "C" {

#define SIM_HIP [[gnu::visibility("default")]] int

SIM_HIP hipInit(unsigned flags);
SIM_HIP hipDriverGetVersion(int* version);
SIM_HIP hipRuntimeGetVersion(int* version);
[[gnu::visibility("default")]] const char* hipGetErrorName(int error);
[[gnu::visibility("default")]] const char* hipGetErrorString(int error);
SIM_HIP hipGetLastError(void);
SIM_HIP hipGetDeviceCount(int* count);
SIM_HIP hipGetDevice(int* device);
SIM_HIP hipSetDevice(int device);
SIM_HIP hipDeviceGet(int* device, int ordinal);
SIM_HIP hipDeviceGetName(char* name, int length, int device);
SIM_HIP hipDeviceTotalMem(std::size_t* bytes, int device);
SIM_HIP hipDeviceGetAttribute(int* value, int attribute, int device);
SIM_HIP hipDeviceCanAccessPeer(int* can, int device, int peer);
SIM_HIP hipDeviceEnablePeerAccess(int peer, unsigned flags);
SIM_HIP hipDeviceDisablePeerAccess(int peer);
SIM_HIP hipDeviceSynchronize(void);
SIM_HIP hipDeviceReset(void);

SIM_HIP hipMemGetInfo(std::size_t* free, std::size_t* total);
SIM_HIP hipMalloc(void** address, std::size_t nbytes);
SIM_HIP hipFree(void* address);
SIM_HIP hipHostMalloc(void** address, std::size_t nbytes, unsigned flags);
SIM_HIP hipHostFree(void* address);
SIM_HIP hipHostRegister(void* address, std::size_t nbytes, unsigned flags);
SIM_HIP hipHostUnregister(void* address);
SIM_HIP hipMallocManaged(void** address, std::size_t nbytes, unsigned flags);
SIM_HIP hipMemAdvise(const void* address, std::size_t nbytes, int advice, int device);
SIM_HIP hipImportExternalMemory(void** external, const tensormem::cuda::ExternalDescription* description);
SIM_HIP hipExternalMemoryGetMappedBuffer(void** address, void* external, const tensormem::cuda::ExternalBuffer* buffer);
SIM_HIP hipDestroyExternalMemory(void* external);
SIM_HIP hipMemPrefetchAsync(const void* address, std::size_t nbytes, int device, void* stream);
SIM_HIP hipMallocAsync(void** address, std::size_t nbytes, void* stream);
SIM_HIP hipMallocFromPoolAsync(void** address, std::size_t nbytes, void* pool, void* stream);
SIM_HIP hipFreeAsync(void* address, void* stream);
SIM_HIP hipDeviceGetDefaultMemPool(void** pool, int device);
SIM_HIP hipMemPoolCreate(void** pool, const void* properties);
SIM_HIP hipMemPoolDestroy(void* pool);
SIM_HIP hipMemPoolSetAttribute(void* pool, int attribute, void* value);
SIM_HIP hipMemPoolTrimTo(void* pool, std::size_t keep_bytes);
SIM_HIP hipMemPoolSetAccess(void* pool, const tensormem::cuda::AccessDescription* rights, std::size_t count);
SIM_HIP hipPointerGetAttribute(void* data, int attribute, void* address);

SIM_HIP hipMemcpy(void* to, const void* from, std::size_t nbytes, int kind);
SIM_HIP hipMemcpyAsync(void* to, const void* from, std::size_t nbytes, int kind, void* stream);
SIM_HIP hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t nbytes,
                           void* stream);
SIM_HIP hipMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                         std::size_t height, int kind, void* stream);
SIM_HIP hipMemset(void* to, int value, std::size_t nbytes);
SIM_HIP hipMemsetAsync(void* to, int value, std::size_t nbytes, void* stream);
SIM_HIP hipMemsetD8Async(void* to, unsigned char value, std::size_t count, void* stream);
SIM_HIP hipMemsetD16Async(void* to, unsigned short value, std::size_t count, void* stream);
SIM_HIP hipMemsetD32Async(void* to, int value, std::size_t count, void* stream);
SIM_HIP hipMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width, std::size_t height, void* stream);

SIM_HIP hipStreamCreate(void** stream);
SIM_HIP hipStreamCreateWithFlags(void** stream, unsigned flags);
SIM_HIP hipStreamDestroy(void* stream);
SIM_HIP hipStreamSynchronize(void* stream);
SIM_HIP hipStreamQuery(void* stream);
SIM_HIP hipStreamGetDevice(void* stream, int* device);
SIM_HIP hipStreamWaitEvent(void* stream, void* event, unsigned flags);
SIM_HIP hipLaunchHostFunc(void* stream, void (*function)(void*), void* argument);
SIM_HIP hipStreamBeginCapture(void* stream, int mode);
SIM_HIP hipStreamEndCapture(void* stream, void** graph);
SIM_HIP hipStreamIsCapturing(void* stream, int* status);
SIM_HIP hipStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id);
SIM_HIP hipThreadExchangeStreamCaptureMode(int* mode);
SIM_HIP hipGraphInstantiate(void** executable, void* graph, void** error_node, char* log, std::size_t log_bytes);
SIM_HIP hipGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags);
SIM_HIP hipGraphLaunch(void* executable, void* stream);
SIM_HIP hipGraphExecDestroy(void* executable);
SIM_HIP hipGraphDestroy(void* graph);
SIM_HIP hipEventCreate(void** event);
SIM_HIP hipEventCreateWithFlags(void** event, unsigned flags);
SIM_HIP hipEventDestroy(void* event);
SIM_HIP hipEventRecord(void* event, void* stream);
SIM_HIP hipEventQuery(void* event);
SIM_HIP hipEventSynchronize(void* event);
SIM_HIP hipEventElapsedTime(float* milliseconds, void* start, void* end);

SIM_HIP hipMemGetAllocationGranularity(std::size_t* granularity,
                                       const tensormem::cuda::AllocationProperties* properties, int option);
SIM_HIP hipMemAddressReserve(void** address, std::size_t size, std::size_t alignment, void* wish,
                             unsigned long long flags);
SIM_HIP hipMemAddressFree(void* address, std::size_t size);
SIM_HIP hipMemCreate(void** handle, std::size_t size, const tensormem::cuda::AllocationProperties* properties,
                     unsigned long long flags);
SIM_HIP hipMemRelease(void* handle);
SIM_HIP hipMemMap(void* address, std::size_t size, std::size_t offset, void* handle, unsigned long long flags);
SIM_HIP hipMemUnmap(void* address, std::size_t size);
SIM_HIP hipMemSetAccess(void* address, std::size_t size, const tensormem::cuda::AccessDescription* rights,
                        std::size_t count);
SIM_HIP hipMemGetAccess(unsigned long long* flags, const tensormem::cuda::Location* where, void* address);
SIM_HIP hipMemExportToShareableHandle(void* shareable, void* handle, int type, unsigned long long flags);
SIM_HIP hipMemImportFromShareableHandle(void** handle, void* shareable, int type);

}  // extern "C"
