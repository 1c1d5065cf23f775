// Memory of every kind, by CUDA's driver.
#include "driver/cuda/in_context.hpp"

namespace tensormem::cuda {

namespace {

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

AllocationProperties properties_of(std::int32_t device, bool exportable) {
  AllocationProperties properties;
  properties.type = kAllocationPinned;
  properties.handle_types = exportable ? kHandlePosixFd : kHandleNone;
  properties.location = {kLocationDevice, device};
  return properties;
}

}  // namespace

// --- Plain memory ------------------------------------------------------------------------------------------------

Status CudaApi::allocate(std::int32_t device, MemoryKind kind, std::uint64_t nbytes, std::uint64_t* address) {
  if (kind == MemoryKind::device)
    return beside_captures(device, "cuMemAlloc", [&] { return f_.cuMemAlloc(address, nbytes); });
  if (kind == MemoryKind::managed) {
    if (f_.cuMemAllocManaged == nullptr) return missing("cuMemAllocManaged");
    return beside_captures(device, "cuMemAllocManaged",
                           [&] { return f_.cuMemAllocManaged(address, nbytes, kAttachGlobal); });
  }
  void* memory = nullptr;
  TM_TRY(beside_captures(device, "cuMemHostAlloc", [&] { return f_.cuMemHostAlloc(&memory, nbytes, kHostPortable); }));
  *address = reinterpret_cast<std::uint64_t>(memory);
  return {};
}

Status CudaApi::deallocate(std::int32_t device, MemoryKind kind, std::uint64_t address) {
  if (kind == MemoryKind::pinned)
    return beside_captures(device, "cuMemFreeHost", [&] { return f_.cuMemFreeHost(pointer(address)); });
  return beside_captures(device, "cuMemFree", [&] { return f_.cuMemFree(address); });
}

Status CudaApi::pin(std::int32_t device, std::uint64_t address, std::uint64_t nbytes) {
  return beside_captures(device, "cuMemHostRegister",
                         [&] { return f_.cuMemHostRegister(pointer(address), nbytes, kHostPortable); });
}

Status CudaApi::unpin(std::int32_t device, std::uint64_t address) {
  return beside_captures(device, "cuMemHostUnregister", [&] { return f_.cuMemHostUnregister(pointer(address)); });
}

// --- Stream-ordered and managed memory ---------------------------------------------------------------------------

// A pool of our own: what others ask of the device's default pool, and set there, is theirs.
Status CudaApi::pool_create(std::int32_t device, gpu::NativePool* pool) {
  if (f_.cuMemPoolCreate == nullptr) return missing("cuMemPoolCreate");
  PoolProperties properties;
  properties.type = kAllocationPinned;
  properties.location = {kLocationDevice, device};
  return in_context(device, "cuMemPoolCreate", [&] { return f_.cuMemPoolCreate(pool, &properties); });
}

Status CudaApi::pool_destroy(gpu::PoolRef pool) {
  if (f_.cuMemPoolDestroy == nullptr) return missing("cuMemPoolDestroy");
  return in_context(pool.device, "cuMemPoolDestroy", [&] { return f_.cuMemPoolDestroy(pool.handle); });
}

Status CudaApi::pool_keep(gpu::PoolRef pool, std::uint64_t keep_bytes) {
  if (f_.cuMemPoolSetAttribute == nullptr) return missing("cuMemPoolSetAttribute");
  return in_context(pool.device, "cuMemPoolSetAttribute",
                    [&] { return f_.cuMemPoolSetAttribute(pool.handle, kPoolReleaseThreshold, &keep_bytes); });
}

Status CudaApi::pool_open(gpu::PoolRef pool, std::int32_t worker) {
  if (f_.cuMemPoolSetAccess == nullptr) return missing("cuMemPoolSetAccess");
  AccessDescription right;
  right.location = {kLocationDevice, worker};
  right.flags = kAccessReadWrite;
  return beside_captures(pool.device, "cuMemPoolSetAccess",
                         [&] { return f_.cuMemPoolSetAccess(pool.handle, &right, 1); });
}

Status CudaApi::pool_trim(gpu::PoolRef pool, std::uint64_t keep_bytes) {
  if (f_.cuMemPoolTrimTo == nullptr) return missing("cuMemPoolTrimTo");
  return in_context(pool.device, "cuMemPoolTrimTo", [&] { return f_.cuMemPoolTrimTo(pool.handle, keep_bytes); });
}

Status CudaApi::allocate_async(gpu::PoolRef pool, std::uint64_t nbytes, gpu::StreamRef stream, std::uint64_t* address) {
  if (f_.cuMemAllocFromPoolAsync == nullptr) return missing("cuMemAllocFromPoolAsync");
  return on_stream(stream, "cuMemAllocFromPoolAsync",
                   [&] { return f_.cuMemAllocFromPoolAsync(address, nbytes, pool.handle, stream.handle); });
}

Status CudaApi::deallocate_async(std::uint64_t address, gpu::StreamRef stream) {
  if (f_.cuMemFreeAsync == nullptr) return missing("cuMemFreeAsync");
  return on_stream(stream, "cuMemFreeAsync", [&] { return f_.cuMemFreeAsync(address, stream.handle); });
}

Status CudaApi::prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t to_device, gpu::StreamRef stream) {
  if (f_.cuMemPrefetchAsync == nullptr) return missing("cuMemPrefetchAsync");
  return in_context(stream.device, "cuMemPrefetchAsync",
                    [&] { return f_.cuMemPrefetchAsync(address, nbytes, to_device, stream.handle); });
}

Status CudaApi::advise(std::uint64_t address, std::uint64_t nbytes, Advice advice, std::int32_t device) {
  const int number = static_cast<int>(advice);
  const std::int32_t at = device < 0 ? 0 : device;  // advice about the host is given in any context
  if (f_.cuMemAdvise_at != nullptr) {
    const Location where{device < 0 ? kLocationHost : kLocationDevice, device < 0 ? 0 : device};
    return in_context(at, "cuMemAdvise", [&] { return f_.cuMemAdvise_at(address, nbytes, number, where); });
  }
  if (f_.cuMemAdvise == nullptr) return missing("cuMemAdvise");
  return in_context(at, "cuMemAdvise", [&] { return f_.cuMemAdvise(address, nbytes, number, device); });
}

// --- Memory of others --------------------------------------------------------------------------------------------

// Newer drivers know DMA-BUFs by a type of their own, on the boards that can import them; what is refused as one is
// offered once more as an opaque descriptor.
Status CudaApi::external_import(std::int32_t device, std::int32_t fd, std::uint64_t nbytes,
                                gpu::NativeExternal* external) {
  if (f_.cuImportExternalMemory == nullptr) return missing("cuImportExternalMemory");
  ExternalDescription description;
  description.fd = fd;
  description.size = nbytes;
  return in_context(device, "cuImportExternalMemory", [&] {
    description.type = kExternalDmaBufFd;
    const Result first = f_.cuImportExternalMemory(external, &description);
    if (first == kSuccess || first == kOutOfMemory) return first;
    description.type = kExternalOpaqueFd;
    return f_.cuImportExternalMemory(external, &description);
  });
}

Status CudaApi::external_map(const gpu::ExternalRef& external, std::uint64_t nbytes, std::uint64_t* address) {
  if (f_.cuExternalMemoryGetMappedBuffer == nullptr) return missing("cuExternalMemoryGetMappedBuffer");
  ExternalBuffer buffer;
  buffer.size = nbytes;
  return in_context(external.device, "cuExternalMemoryGetMappedBuffer",
                    [&] { return f_.cuExternalMemoryGetMappedBuffer(address, external.handle, &buffer); });
}

Status CudaApi::external_unmap(const gpu::ExternalRef& external) {
  return beside_captures(external.device, "cuMemFree", [&] { return f_.cuMemFree(external.address); });
}

Status CudaApi::external_destroy(const gpu::ExternalRef& external) {
  if (f_.cuDestroyExternalMemory == nullptr) return missing("cuDestroyExternalMemory");
  return in_context(external.device, "cuDestroyExternalMemory",
                    [&] { return f_.cuDestroyExternalMemory(external.handle); });
}

// --- Virtual memory ----------------------------------------------------------------------------------------------

Status CudaApi::granularity(std::int32_t device, Granularity* granularity) {
  if (f_.cuMemGetAllocationGranularity == nullptr) return missing("cuMemGetAllocationGranularity");
  const AllocationProperties properties = properties_of(device, false);
  std::size_t found[2] = {};
  for (int option = 0; option < 2; ++option) {
    TM_TRY(
        answer(f_.cuMemGetAllocationGranularity(&found[option], &properties, option), "cuMemGetAllocationGranularity"));
  }
  granularity->minimum = found[0];
  granularity->recommended = found[1];
  return {};
}

Status CudaApi::reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) {
  if (f_.cuMemAddressReserve == nullptr) return missing("cuMemAddressReserve");
  return answer(f_.cuMemAddressReserve(address, size, alignment, 0, 0), "cuMemAddressReserve");
}

Status CudaApi::release(std::uint64_t address, std::uint64_t size) {
  if (f_.cuMemAddressFree == nullptr) return missing("cuMemAddressFree");
  return answer(f_.cuMemAddressFree(address, size), "cuMemAddressFree");
}

Status CudaApi::physical_create(std::int32_t device, std::uint64_t size, bool exportable,
                                gpu::NativePhysical* physical) {
  if (f_.cuMemCreate == nullptr) return missing("cuMemCreate");
  const AllocationProperties properties = properties_of(device, exportable);
  return answer(f_.cuMemCreate(physical, size, &properties, 0), "cuMemCreate");
}

Status CudaApi::physical_destroy(gpu::NativePhysical physical) {
  if (f_.cuMemRelease == nullptr) return missing("cuMemRelease");
  return answer(f_.cuMemRelease(physical), "cuMemRelease");
}

Status CudaApi::map(std::uint64_t address, std::uint64_t size, gpu::NativePhysical physical) {
  if (f_.cuMemMap == nullptr) return missing("cuMemMap");
  return answer(f_.cuMemMap(address, size, 0, physical, 0), "cuMemMap");
}

Status CudaApi::unmap(std::uint64_t address, std::uint64_t size) {
  if (f_.cuMemUnmap == nullptr) return missing("cuMemUnmap");
  return answer(f_.cuMemUnmap(address, size), "cuMemUnmap");
}

Status CudaApi::set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) {
  if (f_.cuMemSetAccess == nullptr) return missing("cuMemSetAccess");
  AccessDescription right;
  right.location = {kLocationDevice, device};
  right.flags = static_cast<std::int32_t>(access);
  return answer(f_.cuMemSetAccess(address, size, &right, 1), "cuMemSetAccess");
}

Status CudaApi::physical_export(gpu::NativePhysical physical, std::int32_t* fd) {
  if (f_.cuMemExportToShareableHandle == nullptr) return missing("cuMemExportToShareableHandle");
  int made = -1;
  TM_TRY(answer(f_.cuMemExportToShareableHandle(&made, physical, kHandlePosixFd, 0), "cuMemExportToShareableHandle"));
  *fd = made;
  return {};
}

Status CudaApi::physical_import(std::int32_t device, std::int32_t fd, gpu::NativePhysical* physical) {
  if (f_.cuMemImportFromShareableHandle == nullptr) return missing("cuMemImportFromShareableHandle");
  void* const shareable = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  return in_context(device, "cuMemImportFromShareableHandle",
                    [&] { return f_.cuMemImportFromShareableHandle(physical, shareable, kHandlePosixFd); });
}

}  // namespace tensormem::cuda
