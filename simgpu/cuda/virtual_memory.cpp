// CUDA functions about virtual memory.
#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

simgpu::Result with_memory(const char* function, std::initializer_list<std::uint64_t> arguments, auto body) {
  return serve(function, arguments, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    return machine.config.virtual_memory ? body(machine.virtual_memory, machine) : kNotSupported;
  });
}

simgpu::Result check_properties(Machine& machine, const AllocationProperties* properties) {
  if (properties == nullptr || properties->type != kAllocationPinned) return simgpu::kInvalidValue;
  if (properties->location.type != kLocationDevice) return kNotSupported;
  const int can_export = machine.config.posix_handles ? kHandlePosixFd : 0;
  if ((properties->handle_types & ~can_export) != 0) return kNotSupported;
  return machine.device(properties->location.id) == nullptr ? kInvalidDevice : simgpu::kSuccess;
}

}  // namespace

extern "C" {

Result cuMemGetAllocationGranularity(std::size_t* granularity, const AllocationProperties* properties, int option) {
  return with_memory("cuMemGetAllocationGranularity", {static_cast<std::uint64_t>(option)},
                     [&](VirtualMemory&, Machine& machine) {
                       if (granularity == nullptr || option < 0 || option > 1) return simgpu::kInvalidValue;
                       SIM_TRY(check_properties(machine, properties));
                       *granularity = option == 0 ? machine.config.granularity : machine.config.recommended_granularity;
                       return simgpu::kSuccess;
                     });
}

Result cuMemAddressReserve(DevicePointer* address, std::size_t size, std::size_t alignment, DevicePointer wish,
                           std::uint64_t flags) {
  return with_memory("cuMemAddressReserve", {size, alignment, wish, flags}, [&](VirtualMemory& memory, Machine&) {
    if (address == nullptr || flags != 0) return simgpu::kInvalidValue;
    return memory.reserve(size, alignment, address);
  });
}

Result cuMemAddressFree(DevicePointer address, std::size_t size) {
  return with_memory("cuMemAddressFree", {address, size},
                     [&](VirtualMemory& memory, Machine&) { return memory.release(address, size); });
}

Result cuMemCreate(AllocationHandle* handle, std::size_t size, const AllocationProperties* properties,
                   std::uint64_t flags) {
  return with_memory("cuMemCreate", {size, flags}, [&](VirtualMemory& memory, Machine& machine) {
    if (handle == nullptr || flags != 0) return simgpu::kInvalidValue;
    SIM_TRY(check_properties(machine, properties));
    return memory.create(*machine.device(properties->location.id), size, properties->handle_types, handle);
  });
}

Result cuMemRelease(AllocationHandle handle) {
  return with_memory("cuMemRelease", {handle}, [&](VirtualMemory& memory, Machine&) { return memory.destroy(handle); });
}

Result cuMemMap(DevicePointer address, std::size_t size, std::size_t offset, AllocationHandle handle,
                std::uint64_t flags) {
  return with_memory("cuMemMap", {address, size, offset, handle, flags}, [&](VirtualMemory& memory, Machine&) {
    return flags != 0 ? simgpu::kInvalidValue : memory.map(address, size, offset, handle);
  });
}

Result cuMemUnmap(DevicePointer address, std::size_t size) {
  return serve("cuMemUnmap", {address, size}, [&](Machine& machine) {
    return machine.config.virtual_memory ? machine.unmap(address, size) : kNotSupported;
  });
}

Result cuMemSetAccess(DevicePointer address, std::size_t size, const AccessDescription* rights, std::size_t count) {
  return with_memory("cuMemSetAccess", {address, size, count}, [&](VirtualMemory& memory, Machine& machine) {
    if (rights == nullptr || count == 0) return simgpu::kInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      if (rights[i].location.type != kLocationDevice) return kNotSupported;
      if (machine.device(rights[i].location.id) == nullptr) return kInvalidDevice;
    }
    for (std::size_t i = 0; i < count; ++i) {
      SIM_TRY(memory.set_access(address, size, rights[i].location.id, rights[i].flags));
    }
    return simgpu::kSuccess;
  });
}

Result cuMemGetAccess(std::uint64_t* flags, const Location* where, DevicePointer address) {
  return with_memory("cuMemGetAccess", {address}, [&](VirtualMemory& memory, Machine& machine) {
    if (flags == nullptr || where == nullptr || where->type != kLocationDevice) return simgpu::kInvalidValue;
    if (machine.device(where->id) == nullptr) return kInvalidDevice;
    int found = 0;
    SIM_TRY(memory.get_access(address, where->id, &found));
    *flags = static_cast<std::uint64_t>(found);
    return simgpu::kSuccess;
  });
}

Result cuMemExportToShareableHandle(void* shareable, AllocationHandle handle, int type, std::uint64_t flags) {
  return with_memory("cuMemExportToShareableHandle", {handle, flags}, [&](VirtualMemory& memory, Machine&) {
    if (shareable == nullptr || flags != 0) return simgpu::kInvalidValue;
    if (type != kHandlePosixFd) return kNotSupported;
    return memory.export_fd(handle, static_cast<int*>(shareable));
  });
}

// The descriptor comes in the place of a pointer.
Result cuMemImportFromShareableHandle(AllocationHandle* handle, void* shareable, int type) {
  return with_memory("cuMemImportFromShareableHandle", {number(shareable)},
                     [&](VirtualMemory& memory, Machine& machine) {
                       if (handle == nullptr) return simgpu::kInvalidValue;
                       if (type != kHandlePosixFd) return kNotSupported;
                       Device* device = current_device(machine);
                       if (device == nullptr) device = machine.device(0);
                       return memory.import_fd(*device, static_cast<int>(number(shareable)), handle);
                     });
}

Result cuMemGetAllocationPropertiesFromHandle(AllocationProperties* properties, AllocationHandle handle) {
  return with_memory("cuMemGetAllocationPropertiesFromHandle", {handle}, [&](VirtualMemory& memory, Machine&) {
    Physical* physical = nullptr;
    if (properties == nullptr) return simgpu::kInvalidValue;
    SIM_TRY(memory.find(handle, &physical));
    *properties = AllocationProperties{};
    properties->type = kAllocationPinned;
    properties->handle_types = physical->handle_types;
    properties->location = {kLocationDevice, physical->device->ordinal};
    return simgpu::kSuccess;
  });
}

Result cuMemRetainAllocationHandle(AllocationHandle* handle, void* address) {
  return with_memory("cuMemRetainAllocationHandle", {number(address)}, [&](VirtualMemory& memory, Machine&) {
    return handle == nullptr ? simgpu::kInvalidValue : memory.retain(number(address), handle);
  });
}

}  // extern "C"

}  // namespace tensormem::cuda
