// Owns: the facts that tensormem asks a vendor's driver about a device, with both vendors' numbers for them.
// Must not know: what follows from an answer.
#pragma once

#include <cstdint>

// name, CUDA's number, HIP's number (-1: that vendor has none)
#define TM_DEVICE_ATTRIBUTES(X)                     \
  X(integrated, 18, 16)                             \
  X(can_map_host_memory, 19, 3)                     \
  X(unified_addressing, 41, 85)                     \
  X(compute_capability_major, 75, 23)               \
  X(compute_capability_minor, 76, 61)               \
  X(managed_memory, 83, 24)                         \
  X(host_native_atomics, 86, 15)                    \
  X(pageable_memory_access, 88, 65)                 \
  X(concurrent_managed_access, 89, 9)               \
  X(host_register, 99, 90)                          \
  X(pageable_memory_uses_host_page_tables, 100, 66) \
  X(direct_managed_access_from_host, 101, 13)       \
  X(virtual_memory, 102, 89)                        \
  X(posix_handles, 103, -1)                         \
  X(memory_pools, 115, 88)                          \
  X(pool_handle_types, 119, 91)                     \
  X(dma_buf, 124, -1)                               \
  X(host_numa_node, 134, -1)

namespace tensormem::gpu {

enum class DeviceAttribute : std::uint8_t {
#define TM_NAME(name, cuda, hip) name,
  TM_DEVICE_ATTRIBUTES(TM_NAME)
#undef TM_NAME
};

struct AttributeNumbers {
  const char* name;
  std::int32_t cuda;
  std::int32_t hip;
};

inline constexpr AttributeNumbers kDeviceAttributes[] = {
#define TM_ROW(name, cuda, hip) {#name, cuda, hip},
    TM_DEVICE_ATTRIBUTES(TM_ROW)
#undef TM_ROW
};

inline constexpr std::size_t kDeviceAttributeCount = sizeof kDeviceAttributes / sizeof kDeviceAttributes[0];

inline constexpr const AttributeNumbers& numbers_of(DeviceAttribute attribute) {
  return kDeviceAttributes[static_cast<std::size_t>(attribute)];
}

}  // namespace tensormem::gpu
