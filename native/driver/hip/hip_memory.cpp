// Memory of every kind, by the HIP runtime.
#include "driver/hip/on_device.hpp"

namespace tensormem::hip {

namespace {

constexpr unsigned kHostPortable = 1;
constexpr unsigned kAttachGlobal = 1;

AllocationProperties properties_of(std::int32_t device, bool exportable) {
  AllocationProperties properties;
  properties.type = cuda::kAllocationPinned;
  properties.handle_types = exportable ? cuda::kHandlePosixFd : cuda::kHandleNone;
  properties.location = {cuda::kLocationDevice, device};
  return properties;
}

std::uint64_t number(const void* memory) { return reinterpret_cast<std::uint64_t>(memory); }

}  // namespace

// --- Plain memory ------------------------------------------------------------------------------------------------

Status HipApi::allocate(std::int32_t device, MemoryKind kind, std::uint64_t nbytes, std::uint64_t* address) {
  void* memory = nullptr;
  if (kind == MemoryKind::managed && f_.hipMallocManaged == nullptr) return missing("hipMallocManaged");
  if (kind == MemoryKind::device) {
    TM_TRY(beside_captures(device, "hipMalloc", [&] { return f_.hipMalloc(&memory, nbytes); }));
  } else if (kind == MemoryKind::managed) {
    TM_TRY(beside_captures(device, "hipMallocManaged",
                           [&] { return f_.hipMallocManaged(&memory, nbytes, kAttachGlobal); }));
  } else {
    TM_TRY(beside_captures(device, "hipHostMalloc", [&] { return f_.hipHostMalloc(&memory, nbytes, kHostPortable); }));
  }
  *address = number(memory);
  return {};
}

Status HipApi::deallocate(std::int32_t device, MemoryKind kind, std::uint64_t address) {
  if (kind == MemoryKind::pinned)
    return beside_captures(device, "hipHostFree", [&] { return f_.hipHostFree(pointer(address)); });
  return beside_captures(device, "hipFree", [&] { return f_.hipFree(pointer(address)); });
}

Status HipApi::pin(std::int32_t device, std::uint64_t address, std::uint64_t nbytes) {
  return beside_captures(device, "hipHostRegister",
                         [&] { return f_.hipHostRegister(pointer(address), nbytes, kHostPortable); });
}

Status HipApi::unpin(std::int32_t device, std::uint64_t address) {
  return beside_captures(device, "hipHostUnregister", [&] { return f_.hipHostUnregister(pointer(address)); });
}

// --- Stream-ordered and managed memory ---------------------------------------------------------------------------

// A pool of our own: what others ask of the device's default pool, and set there, is theirs.
Status HipApi::pool_create(std::int32_t device, gpu::NativePool* pool) {
  if (f_.hipMemPoolCreate == nullptr) return missing("hipMemPoolCreate");
  PoolProperties properties;
  properties.type = cuda::kAllocationPinned;
  properties.location = {cuda::kLocationDevice, device};
  return on_device(device, "hipMemPoolCreate", [&] { return f_.hipMemPoolCreate(pool, &properties); });
}

Status HipApi::pool_destroy(gpu::PoolRef pool) {
  if (f_.hipMemPoolDestroy == nullptr) return missing("hipMemPoolDestroy");
  return on_device(pool.device, "hipMemPoolDestroy", [&] { return f_.hipMemPoolDestroy(pool.handle); });
}

Status HipApi::pool_keep(gpu::PoolRef pool, std::uint64_t keep_bytes) {
  if (f_.hipMemPoolSetAttribute == nullptr) return missing("hipMemPoolSetAttribute");
  return on_device(pool.device, "hipMemPoolSetAttribute",
                   [&] { return f_.hipMemPoolSetAttribute(pool.handle, cuda::kPoolReleaseThreshold, &keep_bytes); });
}

Status HipApi::pool_open(gpu::PoolRef pool, std::int32_t worker) {
  if (f_.hipMemPoolSetAccess == nullptr) return missing("hipMemPoolSetAccess");
  AccessDescription right;
  right.location = {cuda::kLocationDevice, worker};
  right.flags = cuda::kAccessReadWrite;
  return beside_captures(pool.device, "hipMemPoolSetAccess",
                         [&] { return f_.hipMemPoolSetAccess(pool.handle, &right, 1); });
}

Status HipApi::pool_trim(gpu::PoolRef pool, std::uint64_t keep_bytes) {
  if (f_.hipMemPoolTrimTo == nullptr) return missing("hipMemPoolTrimTo");
  return on_device(pool.device, "hipMemPoolTrimTo", [&] { return f_.hipMemPoolTrimTo(pool.handle, keep_bytes); });
}

Status HipApi::allocate_async(gpu::PoolRef pool, std::uint64_t nbytes, gpu::StreamRef stream, std::uint64_t* address) {
  void* memory = nullptr;
  if (f_.hipMallocFromPoolAsync == nullptr) return missing("hipMallocFromPoolAsync");
  TM_TRY(on_device(stream.device, "hipMallocFromPoolAsync",
                   [&] { return f_.hipMallocFromPoolAsync(&memory, nbytes, pool.handle, stream.handle); }));
  *address = number(memory);
  return {};
}

Status HipApi::deallocate_async(std::uint64_t address, gpu::StreamRef stream) {
  if (f_.hipFreeAsync == nullptr) return missing("hipFreeAsync");
  return on_device(stream.device, "hipFreeAsync", [&] { return f_.hipFreeAsync(pointer(address), stream.handle); });
}

Status HipApi::prefetch(std::uint64_t address, std::uint64_t nbytes, std::int32_t to_device, gpu::StreamRef stream) {
  if (f_.hipMemPrefetchAsync == nullptr) return missing("hipMemPrefetchAsync");
  return on_device(stream.device, "hipMemPrefetchAsync",
                   [&] { return f_.hipMemPrefetchAsync(pointer(address), nbytes, to_device, stream.handle); });
}

Status HipApi::advise(std::uint64_t address, std::uint64_t nbytes, Advice advice, std::int32_t device) {
  if (f_.hipMemAdvise == nullptr) return missing("hipMemAdvise");
  return on_device(device < 0 ? 0 : device, "hipMemAdvise",
                   [&] { return f_.hipMemAdvise(pointer(address), nbytes, static_cast<int>(advice), device); });
}

// --- Memory of others --------------------------------------------------------------------------------------------

// HIP has no type for DMA-BUFs: its runtime takes them as opaque descriptors.
Status HipApi::external_import(std::int32_t device, std::int32_t fd, std::uint64_t nbytes,
                               gpu::NativeExternal* external) {
  if (f_.hipImportExternalMemory == nullptr) return missing("hipImportExternalMemory");
  ExternalDescription description;
  description.type = cuda::kExternalOpaqueFd;
  description.fd = fd;
  description.size = nbytes;
  return on_device(device, "hipImportExternalMemory",
                   [&] { return f_.hipImportExternalMemory(external, &description); });
}

Status HipApi::external_map(const gpu::ExternalRef& external, std::uint64_t nbytes, std::uint64_t* address) {
  if (f_.hipExternalMemoryGetMappedBuffer == nullptr) return missing("hipExternalMemoryGetMappedBuffer");
  ExternalBuffer buffer;
  buffer.size = nbytes;
  void* mapped = nullptr;
  TM_TRY(on_device(external.device, "hipExternalMemoryGetMappedBuffer",
                   [&] { return f_.hipExternalMemoryGetMappedBuffer(&mapped, external.handle, &buffer); }));
  *address = number(mapped);
  return {};
}

Status HipApi::external_unmap(const gpu::ExternalRef& external) {
  return beside_captures(external.device, "hipFree", [&] { return f_.hipFree(pointer(external.address)); });
}

Status HipApi::external_destroy(const gpu::ExternalRef& external) {
  if (f_.hipDestroyExternalMemory == nullptr) return missing("hipDestroyExternalMemory");
  return on_device(external.device, "hipDestroyExternalMemory",
                   [&] { return f_.hipDestroyExternalMemory(external.handle); });
}

// --- Virtual memory ----------------------------------------------------------------------------------------------

Status HipApi::granularity(std::int32_t device, Granularity* granularity) {
  if (f_.hipMemGetAllocationGranularity == nullptr) return missing("hipMemGetAllocationGranularity");
  const AllocationProperties properties = properties_of(device, false);
  std::size_t found[2] = {};
  for (int option = 0; option < 2; ++option) {
    TM_TRY(answer(f_.hipMemGetAllocationGranularity(&found[option], &properties, option),
                  "hipMemGetAllocationGranularity"));
  }
  granularity->minimum = found[0];
  granularity->recommended = found[1];
  return {};
}

Status HipApi::reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t* address) {
  void* start = nullptr;
  if (f_.hipMemAddressReserve == nullptr) return missing("hipMemAddressReserve");
  TM_TRY(answer(f_.hipMemAddressReserve(&start, size, alignment, nullptr, 0), "hipMemAddressReserve"));
  *address = number(start);
  return {};
}

Status HipApi::release(std::uint64_t address, std::uint64_t size) {
  if (f_.hipMemAddressFree == nullptr) return missing("hipMemAddressFree");
  return answer(f_.hipMemAddressFree(pointer(address), size), "hipMemAddressFree");
}

Status HipApi::physical_create(std::int32_t device, std::uint64_t size, bool exportable,
                               gpu::NativePhysical* physical) {
  void* handle = nullptr;
  if (f_.hipMemCreate == nullptr) return missing("hipMemCreate");
  const AllocationProperties properties = properties_of(device, exportable);
  TM_TRY(answer(f_.hipMemCreate(&handle, size, &properties, 0), "hipMemCreate"));
  *physical = number(handle);
  return {};
}

Status HipApi::physical_destroy(gpu::NativePhysical physical) {
  if (f_.hipMemRelease == nullptr) return missing("hipMemRelease");
  return answer(f_.hipMemRelease(pointer(physical)), "hipMemRelease");
}

Status HipApi::map(std::uint64_t address, std::uint64_t size, gpu::NativePhysical physical) {
  if (f_.hipMemMap == nullptr) return missing("hipMemMap");
  return answer(f_.hipMemMap(pointer(address), size, 0, pointer(physical), 0), "hipMemMap");
}

Status HipApi::unmap(std::uint64_t address, std::uint64_t size) {
  if (f_.hipMemUnmap == nullptr) return missing("hipMemUnmap");
  return answer(f_.hipMemUnmap(pointer(address), size), "hipMemUnmap");
}

Status HipApi::set_access(std::uint64_t address, std::uint64_t size, std::int32_t device, AccessFlags access) {
  if (f_.hipMemSetAccess == nullptr) return missing("hipMemSetAccess");
  AccessDescription right;
  right.location = {cuda::kLocationDevice, device};
  right.flags = static_cast<std::int32_t>(access);
  return answer(f_.hipMemSetAccess(pointer(address), size, &right, 1), "hipMemSetAccess");
}

Status HipApi::physical_export(gpu::NativePhysical physical, std::int32_t* fd) {
  if (f_.hipMemExportToShareableHandle == nullptr) return missing("hipMemExportToShareableHandle");
  int made = -1;
  TM_TRY(answer(f_.hipMemExportToShareableHandle(&made, pointer(physical), cuda::kHandlePosixFd, 0),
                "hipMemExportToShareableHandle"));
  *fd = made;
  return {};
}

Status HipApi::physical_import(std::int32_t device, std::int32_t fd, gpu::NativePhysical* physical) {
  void* handle = nullptr;
  if (f_.hipMemImportFromShareableHandle == nullptr) return missing("hipMemImportFromShareableHandle");
  // Up to 7.0 the runtime takes the address of a descriptor, from 7.1 on its value, as CUDA does.
  constexpr int kFirstByValue = 70100000;
  int descriptor = fd;
  void* const shareable = f_.driver_version >= kFirstByValue ? reinterpret_cast<void*>(static_cast<std::intptr_t>(fd))
                                                             : static_cast<void*>(&descriptor);
  TM_TRY(on_device(device, "hipMemImportFromShareableHandle",
                   [&] { return f_.hipMemImportFromShareableHandle(&handle, shareable, cuda::kHandlePosixFd); }));
  *physical = number(handle);
  return {};
}

}  // namespace tensormem::hip
