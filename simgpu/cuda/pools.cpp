// CUDA functions about stream-ordered memory and its pools.
#include "cuda/serve.hpp"

using namespace simgpu;
using namespace simgpu::cuda;

namespace tensormem::cuda {

namespace {

simgpu::Result with_pool(const char* function, PoolHandle handle, auto body) {
  return serve(function, {number(handle)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Pool* pool = nullptr;
    SIM_TRY(machine.pools.find(handle, &pool));
    return body(machine, *pool);
  });
}

simgpu::Result give_pool(const char* function, PoolHandle* pool, DeviceNumber ordinal, bool current) {
  return serve(function, {static_cast<std::uint64_t>(ordinal)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    Device* const device = machine.device(ordinal);
    if (device == nullptr) return kInvalidDevice;
    if (pool == nullptr) return simgpu::kInvalidValue;
    if (!machine.config.pools) return kNotSupported;
    Pool& own = machine.pools.default_of(*device);
    *pool = current && device->current_pool != nullptr ? device->current_pool : &own;
    return simgpu::kSuccess;
  });
}

simgpu::Result allocate(const char* function, DevicePointer* address, std::size_t nbytes, PoolHandle handle,
                        StreamHandle stream_handle) {
  const auto body = [&](Machine& machine, Stream& stream) {
    if (address == nullptr || (nbytes == 0 && !machine.config.habits.zero_byte_pools)) return simgpu::kInvalidValue;
    if (!machine.config.pools) return kNotSupported;
    Pool* pool = stream.device->current_pool;
    if (pool == nullptr) pool = &machine.pools.default_of(*stream.device);
    if (handle != nullptr) SIM_TRY(machine.pools.find(handle, &pool));
    return machine.pools.allocate(*pool, nbytes, stream, address);
  };
  return serve_on_stream(function, {nbytes, number(handle), number(stream_handle)}, stream_handle, body);
}

// Which pools there are: pinned memory of a device or the host, managed memory that prefers a place or none.
simgpu::Result place_of(Machine& machine, const Location& where, int type, PoolPlace* place) {
  constexpr int kManaged = 2;
  if (type != kAllocationPinned && type != kManaged) return simgpu::kInvalidValue;
  const bool on_device = where.type == kLocationDevice;
  if (on_device && machine.device(where.id) == nullptr) return kInvalidDevice;
  const bool known = on_device || where.type == kLocationHost || where.type == kLocationHostNode ||
                     (type == kManaged && where.type == kLocationNone);
  if (!known) return simgpu::kInvalidValue;
  if (type == kManaged && !(machine.config.managed && machine.config.concurrent_managed)) return kNotSupported;
  *place = type == kManaged ? PoolPlace::managed : on_device ? PoolPlace::device : PoolPlace::host;
  return simgpu::kSuccess;
}

simgpu::Result pool_at(const char* function, PoolHandle* pool, const Location* where, int type, bool current) {
  if (where != nullptr && where->type == kLocationDevice && type == kAllocationPinned) {
    return give_pool(function, pool, where->id, current);
  }
  return serve(function, {static_cast<std::uint64_t>(type)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    PoolPlace place{};
    if (pool == nullptr || where == nullptr) return simgpu::kInvalidValue;
    SIM_TRY(place_of(machine, *where, type, &place));
    if (!machine.config.pools) return kNotSupported;
    Pool* found = current ? machine.pools.current_for_host(place) : nullptr;
    if (found == nullptr) SIM_TRY(machine.pools.default_for_host(place, &found));
    *pool = found;
    return simgpu::kSuccess;
  });
}

// Attributes up to the internal dependencies are ints, the others 64-bit numbers.
int* flag_of(Pool& pool, int attribute) {
  if (attribute == kPoolFollowEvents) return &pool.follow_events;
  if (attribute == kPoolOpportunistic) return &pool.opportunistic;
  return attribute == kPoolInternalDependencies ? &pool.internal_dependencies : nullptr;
}

std::uint64_t* number_of(Pool& pool, int attribute) {
  switch (attribute) {
    case kPoolReleaseThreshold:
      return &pool.release_threshold;
    case kPoolReservedCurrent:
      return &pool.reserved;
    case kPoolReservedHigh:
      return &pool.reserved_high;
    case kPoolUsedCurrent:
      return &pool.used;
    case kPoolUsedHigh:
      return &pool.used_high;
    default:
      return nullptr;
  }
}

}  // namespace

extern "C" {

Result cuMemAllocAsync(DevicePointer* address, std::size_t nbytes, StreamHandle stream) {
  return allocate("cuMemAllocAsync", address, nbytes, nullptr, stream);
}

Result cuMemAllocFromPoolAsync(DevicePointer* address, std::size_t nbytes, PoolHandle pool, StreamHandle stream) {
  return allocate("cuMemAllocFromPoolAsync", pool == nullptr ? nullptr : address, nbytes, pool, stream);
}

Result cuMemFreeAsync(DevicePointer address, StreamHandle handle) {
  return serve_on_stream("cuMemFreeAsync", {address, number(handle)}, handle,
                         [&](Machine& machine, Stream& stream) { return machine.pools.deallocate(address, stream); });
}

Result cuDeviceGetDefaultMemPool(PoolHandle* pool, DeviceNumber device) {
  return give_pool("cuDeviceGetDefaultMemPool", pool, device, false);
}

Result cuDeviceGetMemPool(PoolHandle* pool, DeviceNumber device) {
  return give_pool("cuDeviceGetMemPool", pool, device, true);
}

Result cuDeviceSetMemPool(DeviceNumber ordinal, PoolHandle handle) {
  return with_pool("cuDeviceSetMemPool", handle, [&](Machine& machine, Pool& pool) {
    Device* const device = machine.device(ordinal);
    if (device == nullptr || pool.device != device) return kInvalidDevice;
    device->current_pool = &pool;
    return simgpu::kSuccess;
  });
}

Result cuMemPoolCreate(PoolHandle* pool, const PoolProperties* properties) {
  return serve("cuMemPoolCreate", {}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    if (pool == nullptr || properties == nullptr) return simgpu::kInvalidValue;
    PoolPlace place{};
    SIM_TRY(place_of(machine, properties->location, properties->type, &place));
    if (!machine.config.pools) return kNotSupported;
    const int can_export = machine.config.posix_handles && place != PoolPlace::managed ? kHandlePosixFd : 0;
    if ((properties->handle_types & ~can_export) != 0) return kNotSupported;
    Pool* made = nullptr;
    if (place == PoolPlace::device) {
      Device& device = *machine.device(properties->location.id);
      SIM_TRY(machine.pools.create(device, properties->handle_types, properties->maximum_bytes, &made));
    } else {
      SIM_TRY(machine.pools.create_for_host(place, properties->handle_types, properties->maximum_bytes, &made));
    }
    *pool = made;
    return simgpu::kSuccess;
  });
}

// --- Pools by location -------------------------------------------------------------------------------------------

Result cuMemGetDefaultMemPool(PoolHandle* pool, const Location* where, int type) {
  return pool_at("cuMemGetDefaultMemPool", pool, where, type, false);
}

Result cuMemGetMemPool(PoolHandle* pool, const Location* where, int type) {
  return pool_at("cuMemGetMemPool", pool, where, type, true);
}

Result cuMemSetMemPool(const Location* where, int type, PoolHandle handle) {
  return with_pool("cuMemSetMemPool", handle, [&](Machine& machine, Pool& pool) {
    PoolPlace place{};
    if (where == nullptr) return simgpu::kInvalidValue;
    SIM_TRY(place_of(machine, *where, type, &place));
    if (pool.place != place || pool.imported) return simgpu::kInvalidValue;
    if (place != PoolPlace::device) {
      machine.pools.current_for_host(place) = &pool;
      return simgpu::kSuccess;
    }
    if (pool.device != machine.device(where->id)) return kInvalidDevice;
    pool.device->current_pool = &pool;
    return simgpu::kSuccess;
  });
}

// --- Between processes -------------------------------------------------------------------------------------------

Result cuMemPoolExportToShareableHandle(void* shareable, PoolHandle handle, int type, std::uint64_t flags) {
  return with_pool("cuMemPoolExportToShareableHandle", handle, [&](Machine& machine, Pool& pool) {
    if (shareable == nullptr || flags != 0 || type != kHandlePosixFd) return simgpu::kInvalidValue;
    return machine.pools.export_fd(pool, static_cast<int*>(shareable));
  });
}

// The descriptor comes in the place of a pointer.
Result cuMemPoolImportFromShareableHandle(PoolHandle* pool, void* shareable, int type, std::uint64_t flags) {
  return serve("cuMemPoolImportFromShareableHandle", {number(shareable)}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    if (pool == nullptr || flags != 0 || type != kHandlePosixFd) return simgpu::kInvalidValue;
    if (!machine.config.pools || !machine.config.posix_handles) return kNotSupported;
    Device* device = current_device(machine);
    if (device == nullptr) device = machine.device(0);
    Pool* made = nullptr;
    SIM_TRY(machine.pools.import_fd(*device, static_cast<int>(number(shareable)), &made));
    *pool = made;
    return simgpu::kSuccess;
  });
}

Result cuMemPoolExportPointer(void* note, DevicePointer address) {
  return serve("cuMemPoolExportPointer", {address}, [&](Machine& machine) {
    const std::lock_guard lock(machine.mutex);
    return note == nullptr ? simgpu::kInvalidValue : machine.pools.export_pointer(address, note);
  });
}

Result cuMemPoolImportPointer(DevicePointer* address, PoolHandle handle, void* note) {
  return with_pool("cuMemPoolImportPointer", handle, [&](Machine& machine, Pool& pool) {
    if (address == nullptr || note == nullptr) return simgpu::kInvalidValue;
    return machine.pools.import_pointer(pool, note, address);
  });
}

Result cuMemPoolDestroy(PoolHandle handle) {
  return with_pool("cuMemPoolDestroy", handle, [&](Machine& machine, Pool& pool) {
    if (pool.device->current_pool == &pool) pool.device->current_pool = nullptr;
    return machine.pools.destroy(pool);
  });
}

Result cuMemPoolTrimTo(PoolHandle handle, std::size_t keep_bytes) {
  return with_pool("cuMemPoolTrimTo", handle, [&](Machine& machine, Pool& pool) {
    machine.pools.trim(pool, keep_bytes);
    return simgpu::kSuccess;
  });
}

Result cuMemPoolSetAttribute(PoolHandle handle, int attribute, void* value) {
  return with_pool("cuMemPoolSetAttribute", handle, [&](Machine&, Pool& pool) {
    if (value == nullptr) return simgpu::kInvalidValue;
    if (int* const flag = flag_of(pool, attribute); flag != nullptr) {
      *flag = *static_cast<int*>(value);
      return simgpu::kSuccess;
    }
    const std::uint64_t given = *static_cast<std::uint64_t*>(value);
    if (attribute == kPoolReleaseThreshold) {
      pool.release_threshold = given;
    } else if (attribute == kPoolReservedHigh && given == 0) {
      pool.reserved_high = pool.reserved;  // high-water marks can only be reset
    } else if (attribute == kPoolUsedHigh && given == 0) {
      pool.used_high = pool.used;
    } else {
      return simgpu::kInvalidValue;
    }
    return simgpu::kSuccess;
  });
}

Result cuMemPoolGetAttribute(PoolHandle handle, int attribute, void* value) {
  return with_pool("cuMemPoolGetAttribute", handle, [&](Machine&, Pool& pool) {
    const int* const flag = flag_of(pool, attribute);
    const std::uint64_t* const wide = number_of(pool, attribute);
    if (value == nullptr || (flag == nullptr && wide == nullptr)) return simgpu::kInvalidValue;
    if (flag != nullptr) {
      *static_cast<int*>(value) = *flag;
    } else {
      *static_cast<std::uint64_t*>(value) = *wide;
    }
    return simgpu::kSuccess;
  });
}

Result cuMemPoolSetAccess(PoolHandle handle, const AccessDescription* rights, std::size_t count) {
  return with_pool("cuMemPoolSetAccess", handle, [&](Machine& machine, Pool& pool) {
    if (rights == nullptr || count == 0) return simgpu::kInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      if (rights[i].location.type != kLocationDevice) return kInvalidDevice;
      SIM_TRY(machine.pools.set_access(pool, rights[i].location.id, rights[i].flags));
    }
    return simgpu::kSuccess;
  });
}

Result cuMemPoolGetAccess(int* flags, PoolHandle handle, Location* where) {
  return with_pool("cuMemPoolGetAccess", handle, [&](Machine& machine, Pool& pool) {
    if (flags == nullptr || where == nullptr || where->type != kLocationDevice) return simgpu::kInvalidValue;
    if (machine.device(where->id) == nullptr) return kInvalidDevice;
    const std::uint32_t bit = 1U << where->id;
    *flags = ((pool.readers & bit) != 0 ? 1 : 0) | ((pool.writers & bit) != 0 ? 2 : 0);
    return simgpu::kSuccess;
  });
}

}  // extern "C"

}  // namespace tensormem::cuda
