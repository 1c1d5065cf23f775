// CUDA functions about memory: plain, pinned, registered and managed, and what a pointer is.
#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

// Managed and registered memory must be known where a function is about it.
simgpu::Result find_managed(Machine& machine, DevicePointer address, std::size_t nbytes) {
  const Range* const range = machine.memory.find(address);
  const bool fits =
      range != nullptr && range->is_managed() && nbytes != 0 && nbytes <= range->size - (address - range->start);
  return fits ? simgpu::kSuccess : simgpu::kInvalidValue;
}

simgpu::Result advise(const char* function, DevicePointer address, std::size_t nbytes, int advice, int device) {
  return serve_in_context(function, {address, nbytes, static_cast<std::uint64_t>(advice)},
                          [&](Machine& machine, Device&) {
                            const std::lock_guard lock(machine.mutex);
                            return machine.advise(address, nbytes, advice, device);
                          });
}

simgpu::Result prefetch(DevicePointer address, std::size_t nbytes, int device, StreamHandle handle) {
  return serve_in_context("cuMemPrefetchAsync", {address, nbytes, static_cast<std::uint64_t>(device), number(handle)},
                          [&](Machine& machine, Device& current) {
                            const std::lock_guard lock(machine.mutex);
                            if (device != -1 && machine.device(device) == nullptr) return kInvalidDevice;
                            SIM_TRY(find_managed(machine, address, nbytes));
                            Stream* stream = nullptr;
                            SIM_TRY(find_stream(machine, current, handle, &stream));
                            machine.memory.find(address)->advice.prefetched = device;
                            return machine.touch(address, nbytes, true, *stream);
                          });
}

// -1: the host; -2: nowhere we know.
int ordinal_of(const Location& where) {
  if (where.type == kLocationDevice) return where.id;
  return where.type == kLocationHost || where.type == kLocationHostNode ? -1 : -2;
}

template <typename Value>
simgpu::Result give(void* data, Value value) {
  *static_cast<Value*>(data) = value;
  return simgpu::kSuccess;
}

simgpu::Result pointer_attribute(Machine& machine, void* data, int attribute, DevicePointer address) {
  const Range* const range = machine.memory.find(address);
  if (range == nullptr) return simgpu::kInvalidValue;
  const bool on_host = range->is_host();
  switch (attribute) {
    case 1:  // context
      return give<void*>(data, range->device);
    case 2:  // memory type
      return give<unsigned>(data, on_host ? kMemoryHost : kMemoryDevice);
    case 3:  // device pointer
      return give<DevicePointer>(data, address);
    case 4:  // host pointer
      if (range->window != nullptr) return simgpu::kInvalidValue;
      return give<std::uint64_t>(data, address);
    case 7:  // buffer id
      return give<std::uint64_t>(data, range->id);
    case 8:  // managed
      return give<std::uint32_t>(data, range->is_managed() ? 1 : 0);
    case 9:  // device
      return give<int>(data, range->device == nullptr ? 0 : range->device->ordinal);
    case 10:  // capable of the old sharing between processes
      return give<std::uint32_t>(data, 0);
    case 11:  // start
    case 19:
      return give<DevicePointer>(data, range->start);
    case 12:  // size
    case 18:
      return give<std::size_t>(data, range->size);
    case 13:  // mapped
      return give<std::uint32_t>(data, 1);
    case 14:  // handle types
      return give<std::uint64_t>(data, range->physical == nullptr ? 0 : range->physical->handle_types);
    case 17:  // pool
      return give<void*>(data, range->pool);
    default:
      return simgpu::kInvalidValue;
  }
}

}  // namespace

extern "C" {

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return serve_in_context("cuMemGetInfo", {}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    if (free == nullptr || total == nullptr) return simgpu::kInvalidValue;
    *free = device.total - device.used;
    *total = device.total;
    return simgpu::kSuccess;
  });
}

Result cuMemAlloc_v2(DevicePointer* address, std::size_t nbytes) {
  return serve_in_context("cuMemAlloc", {nbytes}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    if (address == nullptr || nbytes == 0) return simgpu::kInvalidValue;
    return machine.allocate(device, nbytes, address);
  });
}

Result cuMemAllocPitch_v2(DevicePointer* address, std::size_t* pitch, std::size_t width, std::size_t height,
                          unsigned element) {
  return serve_in_context("cuMemAllocPitch", {width, height, element}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    const bool fits = element == 4 || element == 8 || element == 16;
    if (address == nullptr || pitch == nullptr || width == 0 || height == 0 || !fits) return simgpu::kInvalidValue;
    if (width > 1ULL << 40 || height > (1ULL << 40) / (width + Heap::kGrain)) return simgpu::kOutOfMemory;
    const std::uint64_t row = (width + Heap::kGrain - 1) & ~(Heap::kGrain - 1);
    SIM_TRY(machine.allocate(device, row * height, address));
    *pitch = row;
    return simgpu::kSuccess;
  });
}

Result cuMemFree_v2(DevicePointer address) {
  return serve_in_context("cuMemFree", {address}, [&](Machine& machine, Device&) {
    return address == 0 ? simgpu::kSuccess : machine.deallocate(address, Kind::device);
  });
}

Result cuMemGetAddressRange_v2(DevicePointer* start, std::size_t* size, DevicePointer address) {
  return serve_in_context("cuMemGetAddressRange", {address}, [&](Machine& machine, Device&) {
    const std::lock_guard lock(machine.mutex);
    const Range* const range = machine.memory.find(address);
    if (range == nullptr) return simgpu::kNotFound;
    if (start != nullptr) *start = range->start;
    if (size != nullptr) *size = range->size;
    return simgpu::kSuccess;
  });
}

// --- Pinned and registered host memory ---------------------------------------------------------------------------

Result cuMemHostAlloc(void** address, std::size_t nbytes, unsigned flags) {
  return serve_in_context("cuMemHostAlloc", {nbytes, flags}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    if (address == nullptr || nbytes == 0 || flags > 7) return simgpu::kInvalidValue;
    std::uint64_t got = 0;
    SIM_TRY(machine.allocate_host(&device, nbytes, Kind::host, &got));
    *address = reinterpret_cast<void*>(got);
    return simgpu::kSuccess;
  });
}

Result cuMemAllocHost_v2(void** address, std::size_t nbytes) { return cuMemHostAlloc(address, nbytes, 0); }

Result cuMemFreeHost(void* address) {
  return serve_in_context("cuMemFreeHost", {number(address)},
                          [&](Machine& machine, Device&) { return machine.deallocate(number(address), Kind::host); });
}

Result cuMemHostGetDevicePointer_v2(DevicePointer* device_address, void* address, unsigned flags) {
  return serve_in_context("cuMemHostGetDevicePointer", {number(address), flags}, [&](Machine& machine, Device&) {
    const std::lock_guard lock(machine.mutex);
    const Range* const range = machine.memory.find(number(address));
    if (device_address == nullptr || flags != 0 || range == nullptr || !range->is_host()) return simgpu::kInvalidValue;
    *device_address = number(address);
    return simgpu::kSuccess;
  });
}

Result cuMemHostGetFlags(unsigned* flags, void* address) {
  return serve_in_context("cuMemHostGetFlags", {number(address)}, [&](Machine& machine, Device&) {
    const std::lock_guard lock(machine.mutex);
    const Range* const range = machine.memory.find(number(address));
    if (flags == nullptr || range == nullptr || !range->is_host()) return simgpu::kInvalidValue;
    *flags = 3;  // portable and mapped, as everything is with unified addresses
    return simgpu::kSuccess;
  });
}

Result cuMemHostRegister_v2(void* address, std::size_t nbytes, unsigned flags) {
  return serve_in_context("cuMemHostRegister", {number(address), nbytes, flags}, [&](Machine& machine, Device&) {
    const std::lock_guard lock(machine.mutex);
    return flags > 15 ? simgpu::kInvalidValue : machine.register_host(number(address), nbytes);
  });
}

Result cuMemHostUnregister(void* address) {
  return serve_in_context("cuMemHostUnregister", {number(address)},
                          [&](Machine& machine, Device&) { return machine.unregister_host(number(address)); });
}

// --- Managed memory ----------------------------------------------------------------------------------------------

Result cuMemAllocManaged(DevicePointer* address, std::size_t nbytes, unsigned flags) {
  return serve_in_context("cuMemAllocManaged", {nbytes, flags}, [&](Machine& machine, Device& device) {
    const std::lock_guard lock(machine.mutex);
    if (address == nullptr || nbytes == 0 || flags < 1 || flags > 2) return simgpu::kInvalidValue;
    if (!machine.config.managed) return kNotSupported;
    return machine.allocate_host(&device, nbytes, Kind::managed, address);
  });
}

Result cuMemAdvise(DevicePointer address, std::size_t nbytes, int advice, DeviceNumber device) {
  return advise("cuMemAdvise", address, nbytes, advice, device);
}

Result cuMemAdvise_v2(DevicePointer address, std::size_t nbytes, int advice, Location where) {
  // Read-mostly ignores the place.
  return advise("cuMemAdvise", address, nbytes, advice, advice <= 2 ? -1 : ordinal_of(where));
}

Result cuMemPrefetchAsync(DevicePointer address, std::size_t nbytes, DeviceNumber device, StreamHandle stream) {
  return prefetch(address, nbytes, device, stream);
}

Result cuMemPrefetchAsync_v2(DevicePointer address, std::size_t nbytes, Location where, unsigned flags,
                             StreamHandle stream) {
  return prefetch(address, flags == 0 ? nbytes : 0, ordinal_of(where), stream);
}

// --- What a pointer is -------------------------------------------------------------------------------------------

Result cuPointerGetAttribute(void* data, int attribute, DevicePointer address) {
  return serve("cuPointerGetAttribute", {static_cast<std::uint64_t>(attribute), address}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    return data == nullptr ? simgpu::kInvalidValue : pointer_attribute(machine, data, attribute, address);
  });
}

// Unlike the call for one attribute, this one answers for memory it does not know: with zeros.
Result cuPointerGetAttributes(unsigned count, int* attributes, void** data, DevicePointer address) {
  return serve("cuPointerGetAttributes", {count, address}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    if (attributes == nullptr || data == nullptr) return simgpu::kInvalidValue;
    for (unsigned i = 0; i < count; ++i) {
      if (attributes[i] < 1 || attributes[i] > 21 || data[i] == nullptr) return simgpu::kInvalidValue;
      if (pointer_attribute(machine, data[i], attributes[i], address) == simgpu::kSuccess) continue;
      const bool small = attributes[i] == 2 || attributes[i] == 8 || attributes[i] == 9 || attributes[i] == 13;
      if (small) {
        (void)give<std::uint32_t>(data[i], attributes[i] == 9 ? ~0U : 0U);
      } else {
        (void)give<std::uint64_t>(data[i], 0);
      }
    }
    return simgpu::kSuccess;
  });
}

}  // extern "C"

}  // namespace tensormem::cuda
