// Owns: a request of one thread that nothing free in a pool can serve, and the chunk that a thread is adding for such
// requests. Must not know: how a pool grows.
#pragma once

#include <algorithm>
#include <mutex>
#include <utility>

#include "resource/pool_memory_resource.hpp"

namespace tensormem {

inline constexpr std::uint64_t kPoolChunkAlignment = 4096;

// Guarded by the pool's lock. Shared with the thread that grows for it: its own may not wait for ever.
struct PoolMemoryResource::Miss {
  enum class State : std::uint8_t {
    waiting,   // for the growth under way, or for its turn
    leads,     // its thread makes the pool grow now
    boarded,   // another thread makes the pool grow for it
    served,    // `block` is its
    refused,   // `why` says it
    alone,     // its thread has to see for itself
    abandoned  // its thread waits no more
  };

  explicit Miss(const AllocRequest& asked) : request(asked) {}

  const AllocRequest request;
  Block block{};
  State state = State::waiting;
  Status why;
};

// A chunk that this thread is adding to a pool; the upstream that it asks may come back to the pool.
struct PoolMemoryResource::Growth {
  explicit Growth(PoolMemoryResource& of) : pool(of), outer(std::exchange(innermost, this)) {
    const std::lock_guard lock(pool.lock_);
    number = pool.next_growth_++;
    pool.growths_.push_back(number);
  }
  ~Growth() {
    innermost = outer;
    const std::lock_guard lock(pool.lock_);
    std::erase(pool.growths_, number);
  }
  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;

  static thread_local const Growth* innermost;
  PoolMemoryResource& pool;
  const Growth* const outer;
  std::uint64_t number = 0;
};

}  // namespace tensormem
