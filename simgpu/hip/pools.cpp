// HIP functions about stream-ordered memory and its pools.
#include "hip/serve.hpp"

using namespace simgpu;
using namespace simgpu::hip;

namespace {

int allocate_async(const char* function, void** address, std::size_t nbytes, void* pool_handle, void* handle) {
  return serve_on_stream(function, handle, [&](Machine& machine, Stream& stream) {
    if (address == nullptr || (nbytes == 0 && !machine.config.habits.zero_byte_pools)) return kInvalidValue;
    if (!machine.config.pools) return kNotSupported;
    Pool* pool = &machine.pools.default_of(*stream.device);
    if (pool_handle != nullptr) SIM_TRY(machine.pools.find(pool_handle, &pool));
    std::uint64_t got = 0;
    SIM_TRY(machine.pools.allocate(*pool, nbytes, stream, &got));
    *address = reinterpret_cast<void*>(got);
    return kSuccess;
  });
}

}  // namespace

extern "C" {

int hipMallocAsync(void** address, std::size_t nbytes, void* stream) {
  return allocate_async("hipMallocAsync", address, nbytes, nullptr, stream);
}

int hipMallocFromPoolAsync(void** address, std::size_t nbytes, void* pool, void* stream) {
  return allocate_async("hipMallocFromPoolAsync", pool == nullptr ? nullptr : address, nbytes, pool, stream);
}

int hipFreeAsync(void* address, void* handle) {
  return serve_on_stream("hipFreeAsync", handle, [&](Machine& machine, Stream& stream) {
    return machine.pools.deallocate(number(address), stream);
  });
}

int hipDeviceGetDefaultMemPool(void** pool, int ordinal) {
  return serve("hipDeviceGetDefaultMemPool", {static_cast<std::uint64_t>(ordinal)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* const device = machine.device(ordinal);
    if (device == nullptr) return kInvalidDevice;
    if (pool == nullptr) return kInvalidValue;
    if (!machine.config.pools) return kNotSupported;
    *pool = &machine.pools.default_of(*device);
    return kSuccess;
  });
}

int hipMemPoolCreate(void** pool, const void* described) {
  return serve("hipMemPoolCreate", {}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    const auto* const properties = static_cast<const tensormem::cuda::PoolProperties*>(described);
    if (pool == nullptr || properties == nullptr) return kInvalidValue;
    if (properties->type != tensormem::cuda::kAllocationPinned) return kInvalidValue;
    if (!machine.config.pools || properties->location.type != tensormem::cuda::kLocationDevice) return kNotSupported;
    Device* const device = machine.device(properties->location.id);
    if (device == nullptr) return kInvalidDevice;
    Pool* made = nullptr;
    SIM_TRY(machine.pools.create(*device, properties->handle_types, properties->maximum_bytes, &made));
    *pool = made;
    return kSuccess;
  });
}

int hipMemPoolDestroy(void* handle) {
  return serve("hipMemPoolDestroy", {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Pool* pool = nullptr;
    SIM_TRY(machine.pools.find(handle, &pool));
    return machine.pools.destroy(*pool);
  });
}

int hipMemPoolSetAttribute(void* handle, int attribute, void* value) {
  return serve("hipMemPoolSetAttribute", {number(handle), static_cast<std::uint64_t>(attribute)},
               [&](Machine& machine) {
                 const std::lock_guard lock(machine.mutex);
                 Pool* pool = nullptr;
                 SIM_TRY(machine.pools.find(handle, &pool));
                 if (value == nullptr || attribute != tensormem::cuda::kPoolReleaseThreshold) return kInvalidValue;
                 pool->release_threshold = *static_cast<const std::uint64_t*>(value);
                 return kSuccess;
               });
}

int hipMemPoolTrimTo(void* handle, std::size_t keep_bytes) {
  return serve("hipMemPoolTrimTo", {number(handle), keep_bytes}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Pool* pool = nullptr;
    SIM_TRY(machine.pools.find(handle, &pool));
    machine.pools.trim(*pool, keep_bytes);
    return kSuccess;
  });
}

int hipMemPoolSetAccess(void* handle, const tensormem::cuda::AccessDescription* rights, std::size_t count) {
  return serve("hipMemPoolSetAccess", {number(handle), count}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Pool* pool = nullptr;
    SIM_TRY(machine.pools.find(handle, &pool));
    if (rights == nullptr || count == 0) return kInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      if (rights[i].location.type != tensormem::cuda::kLocationDevice) return kInvalidDevice;
      SIM_TRY(machine.pools.set_access(*pool, rights[i].location.id, rights[i].flags));
    }
    return kSuccess;
  });
}

}  // extern "C"
