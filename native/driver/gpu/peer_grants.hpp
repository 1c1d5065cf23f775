// Owns: which device may reach another's memory: what the driver was asked, and what was granted, once for each pair of
// devices (plain memory), each pool of ours and each mapping of ours. A copy between two devices goes directly where it
// is granted, and through the host where the devices cannot reach one another; both are made by calls that name the
// two, so nothing depends on a grant but the speed, and memory of others is left as its owner has it.
// Must not know: which vendor it is, or what is copied.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "driver/gpu/gpu_api.hpp"

namespace tensormem {

class GpuPlatform;

namespace gpu {

class PeerGrants {
 public:
  explicit PeerGrants(GpuPlatform& platform);

  // Lets each of two devices reach the other's memory, as far as they can. What a driver refuses stays as it was.
  void join(std::int32_t one, std::int32_t other) noexcept;
  // Whether `worker` was given what `owner` has.
  bool reaches(std::int32_t worker, std::int32_t owner) const noexcept;
  // A new pool opens to the devices that reach its own.
  void open(PoolRef pool) noexcept;
  // Mappings of ours in a range of `owner`'s memory open to `worker`, unless their access for it was set before.
  void open(std::uint64_t address, std::uint64_t size, std::int32_t worker, std::int32_t owner) noexcept;

 private:
  enum class State : std::uint8_t { unasked, refused, given };

  std::atomic<State>& state(std::int32_t worker, std::int32_t owner) noexcept;
  const std::atomic<State>& state(std::int32_t worker, std::int32_t owner) const noexcept;
  void give(std::int32_t worker, std::int32_t owner) noexcept;

  GpuPlatform& platform_;
  const std::int32_t count_;
  std::vector<std::atomic<State>> states_;  // by worker and owner
};

}  // namespace gpu

}  // namespace tensormem
