// Owns: the few types of the CUDA driver's binary interface that tensormem speaks, declared from its documentation:
// numbers, layouts, nothing else. The simulated GPU speaks them too, and NVIDIA's own Python packages check both.
// Must not know: who calls, or how the library is opened.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensormem::cuda {

using Result = std::int32_t;  // CUresult
using DeviceNumber = std::int32_t;
using DevicePointer = std::uint64_t;
using ContextHandle = void*;
using StreamHandle = void*;
using EventPointer = void*;
using PoolHandle = void*;
using AllocationHandle = std::uint64_t;
using ExternalHandle = void*;
using HostCallback = void (*)(void*);

// Stream handles that name a stream of the current context instead of pointing to one.
inline constexpr std::uintptr_t kLegacyStream = 1;
inline constexpr std::uintptr_t kPerThreadStream = 2;

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kNoDevice = 100,
  kNotFound = 500,
  kNotReady = 600,
  kPeerAlreadyEnabled = 704,
};

inline constexpr std::uint32_t kStreamNonBlocking = 1;
inline constexpr std::uint32_t kEventDisableTiming = 2;
inline constexpr int kCaptureRelaxed = 2;
inline constexpr std::uint32_t kHostPortable = 1;
inline constexpr std::uint32_t kAttachGlobal = 1;

enum LocationType : std::int32_t { kLocationNone = 0, kLocationDevice = 1, kLocationHost = 2, kLocationHostNode = 3 };
enum AllocationType : std::int32_t { kAllocationPinned = 1 };
enum HandleType : std::int32_t { kHandleNone = 0, kHandlePosixFd = 1 };
enum MemoryType : std::int32_t { kMemoryHost = 1, kMemoryDevice = 2, kMemoryArray = 3, kMemoryUnified = 4 };
enum AccessBits : std::int32_t { kAccessNone = 0, kAccessRead = 1, kAccessReadWrite = 3 };

enum PointerAttribute : std::int32_t { kPointerMemoryType = 2, kPointerIsManaged = 8, kPointerDeviceOrdinal = 9 };

struct Location {
  std::int32_t type = 0;
  std::int32_t id = 0;
};

struct AllocationProperties {
  std::int32_t type = 0;
  std::int32_t handle_types = 0;
  Location location;
  void* windows_metadata = nullptr;
  std::uint8_t compression = 0;
  std::uint8_t rdma_capable = 0;
  std::uint16_t usage = 0;
  std::uint8_t reserved[4] = {};
};
static_assert(sizeof(AllocationProperties) == 32);

struct AccessDescription {
  Location location;
  std::int32_t flags = 0;
};
static_assert(sizeof(AccessDescription) == 12);

struct PoolProperties {
  std::int32_t type = 0;
  std::int32_t handle_types = 0;
  Location location;
  void* windows_attributes = nullptr;
  std::size_t maximum_bytes = 0;
  std::uint16_t usage = 0;
  std::uint8_t reserved[54] = {};
};
static_assert(sizeof(PoolProperties) == 88);

enum PoolAttribute : std::int32_t {
  kPoolFollowEvents = 1,
  kPoolOpportunistic = 2,
  kPoolInternalDependencies = 3,
  kPoolReleaseThreshold = 4,
  kPoolReservedCurrent = 5,
  kPoolReservedHigh = 6,
  kPoolUsedCurrent = 7,
  kPoolUsedHigh = 8,
};

// What kind of descriptor comes in, for memory of others. DMA-BUFs have a number of their own in newer drivers.
enum ExternalType : std::int32_t { kExternalOpaqueFd = 1, kExternalDmaBufFd = 9 };
inline constexpr std::uint32_t kExternalDedicated = 1;

// CUDA_EXTERNAL_MEMORY_HANDLE_DESC, with the union of handles as it is for descriptors.
struct ExternalDescription {
  std::int32_t type = 0;
  alignas(8) std::int32_t fd = -1;
  std::uint8_t rest_of_union[12] = {};
  std::uint64_t size = 0;
  std::uint32_t flags = 0;
  std::uint32_t reserved[16] = {};
};
static_assert(sizeof(ExternalDescription) == 104 && offsetof(ExternalDescription, size) == 24);

// CUDA_EXTERNAL_MEMORY_BUFFER_DESC
struct ExternalBuffer {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t flags = 0;
  std::uint32_t reserved[16] = {};
};
static_assert(sizeof(ExternalBuffer) == 88);

// One side of a 2-D copy, as it lies in CUDA_MEMCPY2D.
struct Side2D {
  std::size_t x_bytes = 0;
  std::size_t y = 0;
  std::int32_t memory_type = 0;
  std::uint64_t host = 0;
  DevicePointer device = 0;
  void* array = nullptr;
  std::size_t pitch = 0;
};

struct Copy2D {
  Side2D source;
  Side2D destination;
  std::size_t width_bytes = 0;
  std::size_t height = 0;
};
static_assert(sizeof(Copy2D) == 128);

// One side of a 3-D copy; `context` is reserved in CUDA_MEMCPY3D and used in CUDA_MEMCPY3D_PEER.
struct Side3D {
  std::size_t x_bytes = 0;
  std::size_t y = 0;
  std::size_t z = 0;
  std::size_t level = 0;
  std::int32_t memory_type = 0;
  std::uint64_t host = 0;
  DevicePointer device = 0;
  void* array = nullptr;
  void* context = nullptr;
  std::size_t pitch = 0;
  std::size_t height = 0;
};

struct Copy3D {
  Side3D source;
  Side3D destination;
  std::size_t width_bytes = 0;
  std::size_t height = 0;
  std::size_t depth = 0;
};
static_assert(sizeof(Copy3D) == 200);

}  // namespace tensormem::cuda
