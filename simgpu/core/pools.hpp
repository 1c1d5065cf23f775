// Owns: stream-ordered memory: pools that hand out memory at a point of a stream and take it back at another. Freed
// memory goes to the same stream at once, to others when their order is known or the free has been passed, and back to
// the device when the machine synchronizes and the pool holds more than its threshold.
// Must not know: copies. Guarded by the machine's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/arena.hpp"
#include "core/memory_map.hpp"
#include "core/results.hpp"
#include "core/streams.hpp"

namespace simgpu {

class Machine;

// Whose memory a pool gives: a device's, the host's, or managed memory.
enum class PoolPlace : std::uint8_t { device, host, managed };

struct Pool {
  Device* device = nullptr;
  PoolPlace place = PoolPlace::device;
  std::unique_ptr<Arena> arena;  // null: the device's own memory, which no other process can reach
  bool imported = false;         // gives nothing out but what its exporter did
  bool is_default = false;
  bool alive = true;
  int handle_types = 0;
  std::uint64_t maximum_bytes = 0;  // 0: as the device
  std::uint64_t release_threshold = 0;
  int follow_events = 1;
  int opportunistic = 1;
  int internal_dependencies = 1;
  std::uint64_t reserved = 0;
  std::uint64_t reserved_high = 0;
  std::uint64_t used = 0;
  std::uint64_t used_high = 0;
  std::uint64_t live = 0;
  std::uint32_t readers = 0;
  std::uint32_t writers = 0;

  struct Freed {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    Point when;
    HostPoint passed;
  };
  std::vector<Freed> freed;
};

class Pools {
 public:
  explicit Pools(Machine& machine) : machine_(machine) {}

  // A pool that can be exported has a file for its memory, unless it is going to get one.
  Result create(Device& device, int handle_types, std::uint64_t maximum_bytes, Pool** pool, bool with_memory = true);
  // Memory of the host, or managed memory.
  Result create_for_host(PoolPlace place, int handle_types, std::uint64_t maximum_bytes, Pool** pool);
  // Memory that is out stays valid; it goes back to the device when it is freed.
  Result destroy(Pool& pool);
  Result find(void* handle, Pool** pool);
  Pool& default_of(Device& device);
  // The default pool of the host or of managed memory; the current one may be another.
  Result default_for_host(PoolPlace place, Pool** pool);
  Pool*& current_for_host(PoolPlace place) { return current_[static_cast<int>(place)]; }

  Result allocate(Pool& pool, std::uint64_t size, Stream& stream, std::uint64_t* address);
  Result deallocate(std::uint64_t address, Stream& stream);
  // What a capture allocated, when neither it nor a graph of it needs the memory any more.
  void give_up(std::uint64_t address);
  void trim(Pool& pool, std::uint64_t keep_bytes);
  // What a device may do with the pool's memory; its own device may always do everything.
  Result set_access(Pool& pool, int device, int flags);
  // Freed memory above the thresholds goes back: the driver's rule at every synchronization.
  void on_synchronize(Device& device);

  // To the device, or to the pool's own memory.
  void give_back(Pool& pool, std::uint64_t address, std::uint64_t size);
  std::uint64_t own_count() const;

  // Between processes; see pool_exchange.cpp.
  Result export_fd(Pool& pool, int* fd);
  Result import_fd(Device& device, int fd, Pool** pool);
  Result export_pointer(std::uint64_t address, void* note);
  Result import_pointer(Pool& pool, const void* note, std::uint64_t* address);

 private:
  bool reuse(Pool& pool, std::uint64_t size, Stream& stream, std::uint64_t* address);
  bool may_reuse(const Pool& pool, const Pool::Freed& freed, const Stream& stream) const;
  Result take_fresh(Pool& pool, std::uint64_t size, std::uint64_t* address);

  void drop_arena(Pool& pool);
  void adopt(Pool& pool, std::unique_ptr<Arena> arena);

  Machine& machine_;
  std::unordered_map<void*, std::unique_ptr<Pool>> pools_;
  Pool* defaults_[3] = {};
  Pool* current_[3] = {};
};

}  // namespace simgpu
