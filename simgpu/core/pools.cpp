#include "core/pools.hpp"

#include <algorithm>

#include "core/captures.hpp"
#include "core/machine.hpp"
#include "driver/host/os.hpp"

namespace simgpu {

namespace {

using tensormem::host::os::page_size;
constexpr std::uint64_t kHostBytes = 16ULL << 30;  // addresses of a pool of the host that has no maximum

std::uint64_t round_up(std::uint64_t size, std::uint64_t grain) { return (size + grain - 1) & ~(grain - 1); }

}  // namespace

Result Pools::create(Device& device, int handle_types, std::uint64_t maximum_bytes, Pool** pool, bool with_memory) {
  auto fresh = std::make_unique<Pool>();
  fresh->device = &device;
  fresh->handle_types = handle_types;
  fresh->maximum_bytes = maximum_bytes;
  fresh->readers = fresh->writers = 1U << device.ordinal;
  if ((handle_types & 1) != 0 && with_memory) {
    auto arena = std::make_unique<Arena>();
    if (!arena->open(device.total, false)) return kOutOfMemory;
    adopt(*fresh, std::move(arena));
  }
  *pool = fresh.get();
  pools_.emplace(fresh.get(), std::move(fresh));
  return kSuccess;
}

void Pools::adopt(Pool& pool, std::unique_ptr<Arena> arena) {
  if (pool.arena != nullptr && pool.arena->window() != nullptr) machine_.memory.remove_window(*pool.arena->window());
  if (arena->window() != nullptr) machine_.memory.add_window(*arena->window());
  pool.arena = std::move(arena);
}

// The file and the addresses of a pool that is destroyed and has nothing out.
void Pools::drop_arena(Pool& pool) {
  if (pool.alive || pool.live != 0 || !pool.freed.empty() || pool.arena == nullptr) return;
  // Work on any stream may still touch it; a driver would wait for that here.
  for (const auto& device : machine_.devices) {
    if (!machine_.streams.ends_of(*device).empty()) return;
  }
  if (pool.arena->window() != nullptr) machine_.memory.remove_window(*pool.arena->window());
  pool.arena = nullptr;
}

Result Pools::create_for_host(PoolPlace place, int handle_types, std::uint64_t maximum_bytes, Pool** pool) {
  auto arena = std::make_unique<Arena>();
  if (!arena->open(round_up(maximum_bytes == 0 ? kHostBytes : maximum_bytes, page_size()), true)) return kOutOfMemory;
  SIM_TRY(create(*machine_.devices[0], 0, maximum_bytes, pool));
  (*pool)->place = place;
  (*pool)->handle_types = handle_types;
  (*pool)->readers = (*pool)->writers = ~0U;
  adopt(**pool, std::move(arena));
  return kSuccess;
}

Result Pools::default_for_host(PoolPlace place, Pool** pool) {
  Pool*& known = defaults_[static_cast<int>(place)];
  if (known == nullptr) {
    SIM_TRY(create_for_host(place, 0, 0, &known));
    known->is_default = true;
  }
  *pool = known;
  return kSuccess;
}

void Pools::give_back(Pool& pool, std::uint64_t address, std::uint64_t size) {
  if (pool.arena == nullptr) {
    pool.device->give_back(address, size);
    return;
  }
  pool.arena->give_back(address, size);
  if (pool.place == PoolPlace::device) pool.device->used -= size;
}

Pool& Pools::default_of(Device& device) {
  if (device.default_pool == nullptr) {
    (void)create(device, 0, 0, &device.default_pool);
    device.default_pool->is_default = true;
  }
  return *device.default_pool;
}

Result Pools::find(void* handle, Pool** pool) {
  const auto found = pools_.find(handle);
  if (found == pools_.end() || !found->second->alive) return kInvalidValue;
  *pool = found->second.get();
  return kSuccess;
}

Result Pools::destroy(Pool& pool) {
  if (pool.is_default) return kInvalidValue;
  if (Pool*& current = current_for_host(pool.place); current == &pool) current = nullptr;
  pool.alive = false;
  trim(pool, 0);
  drop_arena(pool);
  return kSuccess;
}

bool Pools::may_reuse(const Pool& pool, const Pool::Freed& freed, const Stream& stream) const {
  if (freed.when.stream == stream.serial) return true;
  if (pool.follow_events != 0 && stream.clock.covers(freed.when)) return true;
  return pool.opportunistic != 0 && freed.passed.has_passed();
}

bool Pools::reuse(Pool& pool, std::uint64_t size, Stream& stream, std::uint64_t* address) {
  auto best = pool.freed.end();
  for (auto each = pool.freed.begin(); each != pool.freed.end(); ++each) {
    if (each->size < size || each->size > 2 * size || !may_reuse(pool, *each, stream)) continue;
    if (best == pool.freed.end() || each->size < best->size) best = each;
  }
  if (best == pool.freed.end()) return false;
  *address = best->address;
  const std::uint64_t rest = best->size - size;
  if (rest != 0) {
    best->address += size;
    best->size = rest;
  } else {
    pool.freed.erase(best);
  }
  return true;
}

Result Pools::take_fresh(Pool& pool, std::uint64_t size, std::uint64_t* address) {
  if (pool.maximum_bytes != 0 && pool.reserved + size > pool.maximum_bytes) return kOutOfMemory;
  if (pool.arena == nullptr) {
    SIM_TRY(pool.device->take(size, address));
  } else {
    const bool on_device = pool.place == PoolPlace::device;
    if (on_device && size > pool.device->total - pool.device->used) return kOutOfMemory;
    *address = pool.arena->take(size);
    if (*address == 0) return kOutOfMemory;
    if (on_device) pool.device->used += size;
  }
  pool.reserved += size;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  return kSuccess;
}

Result Pools::allocate(Pool& pool, std::uint64_t nbytes, Stream& stream, std::uint64_t* address) {
  if (pool.imported) return kInvalidValue;
  const std::uint64_t grain = pool.arena == nullptr ? Heap::kGrain : page_size();
  const std::uint64_t size = round_up(std::max<std::uint64_t>(nbytes, 1), grain);  // 0 bytes have an address, too
  if (size < nbytes) return kOutOfMemory;
  if (stream.capture != nullptr && stream.capture->invalid) return kCaptureInvalidated;
  stream.clock.merge(machine_.streams.host_clock());
  if (!reuse(pool, size, stream, address)) {
    Result taken = take_fresh(pool, size, address);
    if (taken == kOutOfMemory) {
      trim(pool, 0);
      taken = take_fresh(pool, size, address);
    }
    SIM_TRY(taken);
  }
  Range range;
  range.start = *address;
  range.size = size;
  range.kind = Kind::pooled;
  range.device = pool.device;
  range.window = pool.arena == nullptr ? &pool.device->window : pool.arena->window();
  range.pool = &pool;
  // The allocation is a point of its stream: work that is not known to come after it must not touch the memory.
  stream.clock.raise({stream.serial, ++stream.submitted});
  range.ready = stream.now();
  if (stream.capture != nullptr) {
    range.graph = stream.capture->graph.get();
    stream.capture->graph->memory.push_back(range.start);
  }
  machine_.memory.add(range);
  pool.live += 1;
  pool.used += size;
  pool.used_high = std::max(pool.used_high, pool.used);
  return kSuccess;
}

Result Pools::deallocate(std::uint64_t address, Stream& stream) {
  Range* const range = machine_.memory.find_start(address);
  if (range == nullptr || range->kind != Kind::pooled) return kInvalidValue;
  if (stream.capture != nullptr) {
    // A capture frees what it allocated; the graph keeps the memory for its next launch.
    if (stream.capture->invalid) return kCaptureInvalidated;
    if (range->graph != stream.capture->graph.get() || range->freed_by_graph) return kInvalidValue;
    range->freed_by_graph = true;
    return kSuccess;
  }
  if (range->freed_by_graph) return kInvalidValue;
  stream.clock.merge(machine_.streams.host_clock());
  machine_.check_order(*range, stream, "freed");
  for (const auto& [user, number] : range->uses) {
    if (!stream.clock.covers({user, number})) {
      machine_.violation("memory was freed on a stream that is not behind a use on another stream", address);
    }
  }
  stream.clock.raise({stream.serial, ++stream.submitted});
  Pool& pool = *range->pool;
  if (range->imports != 0) {
    // Only the exporter gives the memory back; here its addresses stay until the stream has passed the free.
    if (--range->imports != 0) return kSuccess;
    pool.live -= 1;
    pool.freed.push_back({range->start, range->size, stream.now(), machine_.streams.end_of(stream)});
    machine_.memory.remove(address);
    return kSuccess;
  }
  pool.freed.push_back({range->start, range->size, stream.now(), machine_.streams.end_of(stream)});
  pool.used -= range->size;
  pool.live -= 1;
  machine_.memory.remove(address);
  if (!pool.alive) {
    trim(pool, 0);
    drop_arena(pool);
  }
  return kSuccess;
}

void Pools::give_up(std::uint64_t address) {
  const Range* const range = machine_.memory.find_start(address);
  if (range == nullptr || !range->freed_by_graph) return;
  Pool& pool = *range->pool;
  pool.freed.push_back({range->start, range->size, {}, {}});
  pool.used -= range->size;
  pool.live -= 1;
  machine_.memory.remove(address);
}

void Pools::trim(Pool& pool, std::uint64_t keep_bytes) {
  std::vector<Pool::Freed> kept;
  for (const Pool::Freed& freed : pool.freed) {
    const bool is_kept = !pool.imported && pool.reserved <= keep_bytes;
    if (is_kept || !freed.passed.has_passed()) {
      kept.push_back(freed);
      continue;
    }
    if (pool.imported) continue;
    pool.reserved -= freed.size;
    give_back(pool, freed.address, freed.size);
  }
  pool.freed = std::move(kept);
}

Result Pools::set_access(Pool& pool, int ordinal, int flags) {
  constexpr int kReadWrite = 3;
  const Device* const device = machine_.device(ordinal);
  if (device == nullptr || (device != pool.device && !machine_.config.peer)) return kInvalidDevice;
  if (flags != 0 && flags != 1 && flags != kReadWrite) return kInvalidValue;
  if (device == pool.device && flags != kReadWrite) return kInvalidValue;
  const std::uint32_t bit = 1U << ordinal;
  pool.readers = (flags & 1) != 0 ? pool.readers | bit : pool.readers & ~bit;
  pool.writers = (flags & 2) != 0 ? pool.writers | bit : pool.writers & ~bit;
  return kSuccess;
}

void Pools::on_synchronize(Device& device) {
  for (auto& [handle, pool] : pools_) {
    if (pool->device != &device) continue;
    trim(*pool, pool->alive ? pool->release_threshold : 0);
    drop_arena(*pool);
  }
}

std::uint64_t Pools::own_count() const {
  std::uint64_t count = 0;
  for (const auto& [handle, pool] : pools_) count += pool->alive && !pool->is_default ? 1 : 0;
  return count;
}

}  // namespace simgpu
