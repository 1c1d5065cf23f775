// Owns: the leaf whose memory comes from two functions of the caller's. Its own table tells a double or stale free from
// a good one before the functions are called. Must not know: what the functions are written in. They are called without
// any lock of ours.
#pragma once

#include <functional>
#include <utility>

#include "resource/leaf_memory_resource.hpp"

namespace tensormem {

struct MemoryCallbacks {
  // Sets `*address`; 0 is "no memory".
  std::function<Status(const AllocRequest& request, std::uint64_t* address)> take;
  std::function<Status(std::uint64_t address, std::uint64_t nbytes, StreamId stream)> give_back;
};

class CallbackMemoryResource final : public LeafMemoryResource {
 public:
  CallbackMemoryResource(Driver& driver, std::int32_t device, MemoryCallbacks callbacks)
      : LeafMemoryResource(driver, device), callbacks_(std::move(callbacks)) {}
  ~CallbackMemoryResource() override { finish(); }

 private:
  Status take(const AllocRequest& request, std::uint64_t* address) override;
  Status give_back(const BlockEntry& entry) override {
    return callbacks_.give_back(entry.address, entry.nbytes, entry.stream);
  }

  const MemoryCallbacks callbacks_;
};

}  // namespace tensormem
