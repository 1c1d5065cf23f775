// Owns: the leaf whose memory comes from two functions of the caller's. Its own table tells a double or stale free from
// a good one before the functions are called. Must not know: what the functions are written in. They are called without
// any lock of ours.
#pragma once

#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/fork_guard.hpp"
#include "resource/leaf_memory_resource.hpp"

namespace tensormem {

struct MemoryCallbacks {
  // Sets `*address`; 0 is "no memory". `request.nbytes` is what to take, and includes room to align by ourselves.
  std::function<Status(const AllocRequest& request, std::uint64_t* address)> take;
  std::function<Status(std::uint64_t address, std::uint64_t nbytes, StreamId stream)> give_back;
};

class CallbackMemoryResource final : public LeafMemoryResource {
 public:
  // `alignment`: what the callback's addresses are multiples of. Where more is asked for, we take more and align.
  CallbackMemoryResource(Driver& driver, std::int32_t device, MemoryCallbacks callbacks, std::uint64_t alignment)
      : LeafMemoryResource(driver, device), callbacks_(std::move(callbacks)), alignment_(alignment) {}
  ~CallbackMemoryResource() override { finish(); }

 private:
  Status take(const AllocRequest& request, std::uint64_t* address) override;
  Status give_back(const BlockEntry& entry) override;
  // A function that failed may have taken the memory all the same.
  bool may_ask_again() const override { return false; }

  struct Taken {
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
  };

  const MemoryCallbacks callbacks_;
  const std::uint64_t alignment_;
  std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::unordered_map<std::uint64_t, Taken> moved_;  // blocks that start later than what was taken
};

}  // namespace tensormem
