// Owns: the leaf over a kind of memory: shared memory, DMA-BUFs, pixel buffers, kinds of users, and what came from
// others by descriptor. The request says who makes the bytes; without a word, the kind's own maker does. Memory without
// an address is known by a handle that no address can be. Must not know: any kind.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/fork_guard.hpp"
#include "resource/leaf_memory_resource.hpp"
#include "resource/memory_maker.hpp"

namespace tensormem {

class KindMemoryResource final : public LeafMemoryResource {
 public:
  // `standard` makes what nobody else is named for; it may be null, and then such requests are refused.
  KindMemoryResource(Driver& driver, std::int32_t device, const MemorySpace& space,
                     std::shared_ptr<MemoryMaker> standard)
      : LeafMemoryResource(driver, device, space), standard_(std::move(standard)) {}
  ~KindMemoryResource() override { finish(); }

 private:
  Status take(const AllocRequest& request, std::uint64_t* address) override;
  bool can_zero(const AllocRequest& request) const override;
  MemoryMaker* maker_of(const AllocRequest& request) const {
    return request.maker != nullptr ? request.maker : standard_.get();
  }
  Status give_back(const BlockEntry& entry) override;

  const std::shared_ptr<MemoryMaker> standard_;
  std::mutex mutex_;
  ForkGuard kind_fork_guard_{mutex_};
  std::unordered_map<std::uint64_t, std::unique_ptr<KindMemory>> pieces_;  // by the address of the block
  std::uint64_t next_handle_ = kFirstHandle;
};

}  // namespace tensormem
