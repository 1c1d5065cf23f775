#include "driver/gpu/peer_grants.hpp"

#include <mutex>

#include "driver/gpu/gpu_platform.hpp"

namespace tensormem::gpu {

PeerGrants::PeerGrants(GpuPlatform& platform)
    : platform_(platform),
      count_(platform.device_count()),
      states_(static_cast<std::size_t>(count_) * static_cast<std::size_t>(count_)) {}

std::atomic<PeerGrants::State>& PeerGrants::state(std::int32_t worker, std::int32_t owner) noexcept {
  return states_[static_cast<std::size_t>(worker) * static_cast<std::size_t>(count_) + static_cast<std::size_t>(owner)];
}

const std::atomic<PeerGrants::State>& PeerGrants::state(std::int32_t worker, std::int32_t owner) const noexcept {
  return const_cast<PeerGrants*>(this)->state(worker, owner);
}

bool PeerGrants::reaches(std::int32_t worker, std::int32_t owner) const noexcept {
  return worker == owner || state(worker, owner) == State::given;
}

void PeerGrants::join(std::int32_t one, std::int32_t other) noexcept {
  give(one, other);
  give(other, one);
}

// Two threads may both be the first: the driver says to one of them that it is granted already, which is as good.
void PeerGrants::give(std::int32_t worker, std::int32_t owner) noexcept {
  std::atomic<State>& known = state(worker, owner);
  if (known != State::unasked) [[likely]]
    return;
  GpuApi& api = platform_.api();
  const bool given = api.can_reach(worker, owner) && api.peer_enable(worker, owner).ok();
  known = given ? State::given : State::refused;
  if (!given) return;
  for (const PoolRef& pool : platform_.pools.items()) {
    if (pool.device == owner) (void)api.pool_open(pool, worker).ok();
  }
}

void PeerGrants::open(PoolRef pool) noexcept {
  for (std::int32_t worker = 0; worker < count_; ++worker) {
    if (worker != pool.device && reaches(worker, pool.device)) (void)platform_.api().pool_open(pool, worker).ok();
  }
}

void PeerGrants::open(std::uint64_t address, std::uint64_t size, std::int32_t worker, std::int32_t owner) noexcept {
  if (worker == owner || !reaches(worker, owner)) return;
  std::uint64_t start = 0;
  std::uint64_t span = 0;
  {
    const std::lock_guard lock(platform_.mutex);
    if (!platform_.books.begin_grant(address, size, worker, &start, &span)) return;
  }
  (void)platform_.api().set_access(start, span, worker, AccessFlags::read_write).ok();
}

}  // namespace tensormem::gpu
