// Owns: stream-ordered memory: pools that hand out memory at a point of a stream and take it back at another. Freed
// memory goes to the same stream at once, to others when their order is known or the free has been passed, and back to
// the device when the machine synchronizes and the pool holds more than its threshold.
// Must not know: copies. Guarded by the machine's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/memory_map.hpp"
#include "core/results.hpp"
#include "core/streams.hpp"

namespace simgpu {

class Machine;

struct Pool {
  Device* device = nullptr;
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

  Result create(Device& device, int handle_types, std::uint64_t maximum_bytes, Pool** pool);
  // Memory that is out stays valid; it goes back to the device when it is freed.
  Result destroy(Pool& pool);
  Result find(void* handle, Pool** pool);
  Pool& default_of(Device& device);

  Result allocate(Pool& pool, std::uint64_t size, Stream& stream, std::uint64_t* address);
  Result deallocate(std::uint64_t address, Stream& stream);
  // What a capture allocated, when neither it nor a graph of it needs the memory any more.
  void give_up(std::uint64_t address);
  void trim(Pool& pool, std::uint64_t keep_bytes);
  // Freed memory above the thresholds goes back: the driver's rule at every synchronization.
  void on_synchronize(Device& device);

  std::uint64_t own_count() const;

 private:
  bool reuse(Pool& pool, std::uint64_t size, Stream& stream, std::uint64_t* address);
  bool may_reuse(const Pool& pool, const Pool::Freed& freed, const Stream& stream) const;
  Result take_fresh(Pool& pool, std::uint64_t size, std::uint64_t* address);

  Machine& machine_;
  std::unordered_map<void*, std::unique_ptr<Pool>> pools_;
};

}  // namespace simgpu
