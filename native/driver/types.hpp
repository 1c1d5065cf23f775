// Owns: the words that every driver speaks: handles, requests and answers, as plain values.
// Must not know: any operating system or vendor API.
#pragma once

#include <cstdint>

namespace tensormem {

// A stream of one driver. 0 is the default stream; the others come from the driver's pool (slot in the low half, a
// serial number in the high half, so that the id of a destroyed stream is never mistaken for its successor's).
using StreamId = std::uint64_t;
inline constexpr StreamId kDefaultStream = 0;

// A pool of stream-ordered memory. Opaque; owned by whoever created it. 0 where a driver has none of its own.
using AsyncPool = std::uint64_t;
inline constexpr AsyncPool kNoPool = 0;

// A point in a stream. Opaque; owned by whoever created it. Null is "no event".
using EventHandle = void*;

// A work item for `launch_host`. It must not call back into the stream that runs it.
using HostFunction = void (*)(void* argument);

enum class MemoryKind : std::uint8_t { device, pinned, managed };
enum class AccessFlags : std::uint8_t { none = 0, read = 1, read_write = 3 };

// What a driver is told about the future of managed memory; each can be taken back. Both vendors' own numbers.
enum class Advice : std::uint8_t {
  read_mostly = 1,
  unset_read_mostly = 2,
  preferred_location = 3,
  unset_preferred_location = 4,
  accessed_by = 5,
  unset_accessed_by = 6,
};

struct DeviceInfo {
  char name[96] = {};
  std::uint64_t total_bytes = 0;
  std::int32_t numa_node = -1;
  bool simulated = false;
  bool managed_memory = false;
  bool virtual_memory = false;
  bool memory_pools = false;               // stream-ordered memory
  bool posix_handles = false;              // physical memory can be exported by a descriptor
  bool concurrent_managed_access = false;  // the CPU may touch managed memory while the device works
  bool integrated = false;                 // the device has no memory of its own
  bool host_native_atomics = false;
  bool pageable_memory_access = false;  // the device reaches memory that nobody pinned
};

struct MemoryInfo {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

struct AllocationOptions {
  MemoryKind kind = MemoryKind::device;
  std::uint64_t alignment = 256;
  std::int32_t numa_node = -1;  // -1: wherever the system puts it
  bool huge_pages = false;      // ask for them; the allocation works without
  bool zeroed = false;
};

// A box of `depth` planes of `height` rows of `width` bytes. 1-D is height = depth = 1.
struct CopyShape {
  std::uint64_t width = 0;
  std::uint64_t height = 1;
  std::uint64_t depth = 1;
};

inline constexpr std::int32_t kHostPlace = -1;     // memory that the CPU reaches, to a driver of GPUs
inline constexpr std::int32_t kUnknownPlace = -2;  // the driver finds out whose memory it is

// Where the box starts and how far apart its rows and planes are, in bytes; and on which device, if that is known.
struct Pitched {
  std::uint64_t address = 0;
  std::int32_t device = 0;
  std::uint64_t row_pitch = 0;
  std::uint64_t plane_pitch = 0;
};

struct Granularity {
  std::uint64_t minimum = 0;
  std::uint64_t recommended = 0;
  bool whole_handles = false;  // physical memory is mapped whole and from 0, and unmapped whole
};

// Physical memory. Opaque; owned by whoever created or imported it.
using PhysicalHandle = std::uint64_t;
inline constexpr PhysicalHandle kNoPhysical = 0;

// A part of physical memory that is to get an address.
struct MapPiece {
  PhysicalHandle physical = kNoPhysical;
  std::uint64_t physical_offset = 0;
  std::uint64_t size = 0;
};

struct PhysicalOptions {
  bool exportable = false;  // may be handed to another process by fd
  bool huge_pages = true;   // ask for them; works without
  // A wish: the byte index at which neighbours would like to be neighbours. On the host the address of the future
  // mapping is the best one: neighbours then share one memory area, and no two pools ever want the same place.
  std::uint64_t placement = ~0ULL;
};

struct PhysicalInfo {
  std::uint64_t size = 0;
  std::int32_t device = 0;
  bool exportable = false;
  bool huge_pages = false;  // really backed by them
  bool imported = false;
};

}  // namespace tensormem
