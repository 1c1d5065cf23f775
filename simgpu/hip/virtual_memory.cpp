// HIP functions about virtual memory.
#include "hip/serve.hpp"

using namespace simgpu;
using namespace simgpu::hip;
using tensormem::cuda::AccessDescription;
using tensormem::cuda::AllocationProperties;
using tensormem::cuda::Location;

namespace {

int with_memory(const char* function, std::initializer_list<std::uint64_t> arguments, auto body) {
  return serve(function, arguments, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    return machine.config.virtual_memory ? body(machine.virtual_memory, machine) : kNotSupported;
  });
}

Result check_properties(Machine& machine, const AllocationProperties* properties) {
  if (properties == nullptr || properties->type != tensormem::cuda::kAllocationPinned) return kInvalidValue;
  if (properties->location.type != tensormem::cuda::kLocationDevice) return kNotSupported;
  const int can_export = machine.config.posix_handles ? tensormem::cuda::kHandlePosixFd : 0;
  if ((properties->handle_types & ~can_export) != 0) return kNotSupported;
  return machine.device(properties->location.id) == nullptr ? kInvalidDevice : kSuccess;
}

}  // namespace

extern "C" {

int hipMemGetAllocationGranularity(std::size_t* granularity, const AllocationProperties* properties, int option) {
  return with_memory("hipMemGetAllocationGranularity", {static_cast<std::uint64_t>(option)},
                     [&](VirtualMemory&, Machine& machine) {
                       if (granularity == nullptr || option < 0 || option > 1) return kInvalidValue;
                       SIM_TRY(check_properties(machine, properties));
                       *granularity = option == 0 ? machine.config.granularity : machine.config.recommended_granularity;
                       return kSuccess;
                     });
}

int hipMemAddressReserve(void** address, std::size_t size, std::size_t alignment, void* wish,
                         unsigned long long flags) {
  return with_memory("hipMemAddressReserve", {size, alignment, number(wish), flags},
                     [&](VirtualMemory& memory, Machine&) {
                       if (address == nullptr || flags != 0) return kInvalidValue;
                       std::uint64_t got = 0;
                       SIM_TRY(memory.reserve(size, alignment, &got));
                       *address = reinterpret_cast<void*>(got);
                       return kSuccess;
                     });
}

int hipMemAddressFree(void* address, std::size_t size) {
  return with_memory("hipMemAddressFree", {number(address), size},
                     [&](VirtualMemory& memory, Machine&) { return memory.release(number(address), size); });
}

int hipMemCreate(void** handle, std::size_t size, const AllocationProperties* properties, unsigned long long flags) {
  return with_memory("hipMemCreate", {size, flags}, [&](VirtualMemory& memory, Machine& machine) {
    std::uint64_t made = 0;
    if (handle == nullptr || flags != 0) return kInvalidValue;
    SIM_TRY(check_properties(machine, properties));
    SIM_TRY(memory.create(*machine.device(properties->location.id), size, properties->handle_types, &made));
    *handle = reinterpret_cast<void*>(made);
    return kSuccess;
  });
}

int hipMemRelease(void* handle) {
  return with_memory("hipMemRelease", {number(handle)},
                     [&](VirtualMemory& memory, Machine&) { return memory.destroy(number(handle)); });
}

int hipMemMap(void* address, std::size_t size, std::size_t offset, void* handle, unsigned long long flags) {
  return with_memory("hipMemMap", {number(address), size, offset, number(handle), flags},
                     [&](VirtualMemory& memory, Machine&) {
                       return flags != 0 ? kInvalidValue : memory.map(number(address), size, offset, number(handle));
                     });
}

int hipMemUnmap(void* address, std::size_t size) {
  return serve("hipMemUnmap", {number(address), size}, [&](Machine& machine) {
    return machine.config.virtual_memory ? machine.unmap(number(address), size) : kNotSupported;
  });
}

int hipMemSetAccess(void* address, std::size_t size, const AccessDescription* rights, std::size_t count) {
  return with_memory("hipMemSetAccess", {number(address), size, count}, [&](VirtualMemory& memory, Machine& machine) {
    if (rights == nullptr || count == 0) return kInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      if (rights[i].location.type != tensormem::cuda::kLocationDevice) return kNotSupported;
      if (machine.device(rights[i].location.id) == nullptr) return kInvalidDevice;
    }
    for (std::size_t i = 0; i < count; ++i) {
      SIM_TRY(memory.set_access(number(address), size, rights[i].location.id, rights[i].flags));
    }
    return kSuccess;
  });
}

int hipMemGetAccess(unsigned long long* flags, const Location* where, void* address) {
  return with_memory("hipMemGetAccess", {number(address)}, [&](VirtualMemory& memory, Machine& machine) {
    if (flags == nullptr || where == nullptr || machine.device(where->id) == nullptr) return kInvalidValue;
    int found = 0;
    SIM_TRY(memory.get_access(number(address), where->id, &found));
    *flags = static_cast<unsigned long long>(found);
    return kSuccess;
  });
}

int hipMemExportToShareableHandle(void* shareable, void* handle, int type, unsigned long long flags) {
  return with_memory("hipMemExportToShareableHandle", {number(handle), flags}, [&](VirtualMemory& memory, Machine&) {
    if (shareable == nullptr || flags != 0) return kInvalidValue;
    if (type != tensormem::cuda::kHandlePosixFd) return kNotSupported;
    return memory.export_fd(number(handle), static_cast<int*>(shareable));
  });
}

int hipMemImportFromShareableHandle(void** handle, void* shareable, int type) {
  return with_memory("hipMemImportFromShareableHandle", {number(shareable)},
                     [&](VirtualMemory& memory, Machine& machine) {
                       std::uint64_t made = 0;
                       if (handle == nullptr) return kInvalidValue;
                       if (type != tensormem::cuda::kHandlePosixFd) return kNotSupported;
                       int fd = static_cast<int>(number(shareable));
                       if (machine.config.habits.import_by_pointer) {
                         // The address of the descriptor, up to ROCm 7.0; what is not one crashes there, and is refused
                         // here.
                         if (number(shareable) < 4096) return kInvalidValue;
                         fd = *static_cast<const int*>(shareable);
                       }
                       SIM_TRY(memory.import_fd(*machine.device(current_ordinal()), fd, &made));
                       *handle = reinterpret_cast<void*>(made);
                       return kSuccess;
                     });
}

}  // extern "C"
