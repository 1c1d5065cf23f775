// Owns: one block of the upstream, handed out by a plan: the k-th allocation of a step gets the place that was planned
// for it, when it is as large as planned and the place is free. Whatever differs goes to the upstream. A place counts
// as taken until every stream that used it has passed, so no plan, however wrong, makes two blocks share bytes. Must
// not know: who made the plan.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/fork_guard.hpp"
#include "resource/leaf_memory_resource.hpp"

namespace tensormem {

struct PlannedBlock {
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
};

struct PlannedUsage {
  std::uint64_t planned = 0;    // blocks that got their planned place
  std::uint64_t fallbacks = 0;  // blocks that went to the upstream
  std::uint64_t position = 0;   // of the next allocation in the plan
};

class PlannedMemoryResource final : public LeafMemoryResource {
 public:
  // Takes `height` bytes from the upstream at once. The blocks are in the order in which they will be asked for, and
  // lie below the height.
  static Status create(ResourcePtr upstream, std::vector<PlannedBlock> plan, std::uint64_t height,
                       std::uint64_t alignment, std::shared_ptr<PlannedMemoryResource>* out);
  ~PlannedMemoryResource() override;

  // Begins the plan from the front. Blocks that are still out keep their places.
  void new_step();
  PlannedUsage usage() const;

  Status reap_pending() override;
  bool is_valid() const override;

  bool supports_block_use_tracking() const override { return upstream_->supports_block_use_tracking(); }
  Status prepare_block_use(const Block& block, StreamId stream, Access access) override;
  Status finish_block_use(const Block& block, StreamId stream, Access access) override;

 private:
  PlannedMemoryResource(ResourcePtr upstream, std::vector<PlannedBlock> plan);

  Status take(const AllocRequest& request, std::uint64_t* address) override;
  Status give_back(const BlockEntry& entry) override;

  // With the lock.
  bool take_planned(const AllocRequest& request, std::uint64_t* address);
  bool find_in_plan(std::uint64_t nbytes, std::size_t* found) const;
  bool is_free(std::uint64_t offset, std::uint64_t end) const;

  Status take_from_upstream(const AllocRequest& request, std::uint64_t* address);
  Status give_to_upstream(const Block& block);
  bool find_fallback(std::uint64_t address, Block* block) const;

  const ResourcePtr upstream_;
  const std::vector<PlannedBlock> plan_;
  Block arena_;
  bool has_arena_ = false;

  mutable std::mutex plan_mutex_;  // guards everything below; never held over the upstream
  ForkGuard plan_fork_guard_{plan_mutex_};
  std::size_t next_ = 0;
  PlannedUsage usage_;
  std::map<std::uint64_t, std::uint64_t> taken_;        // places in use: offset to end
  std::unordered_map<std::uint64_t, Block> fallbacks_;  // blocks of the upstream, by address
  std::vector<Block> owed_;                             // given back to us, and refused by the upstream: offered again
};

}  // namespace tensormem
