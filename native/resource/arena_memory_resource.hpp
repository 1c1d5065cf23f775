// Owns: one pool per handful of threads, so that threads do not wait for one another. A thread allocates from its own
// pool, helps itself from the others when that cannot grow, waits for streams only when none of them has room, and a
// block goes back to the pool that made it. Totals are
// sums over the pools; the peak is the sum of their peaks, which is never less than the true one. Must not know: how a
// pool works.
#pragma once

#include <memory>
#include <vector>

#include "resource/pool_memory_resource.hpp"

namespace tensormem {

class ArenaMemoryResource final : public Resource {
 public:
  // As many arenas as make threads on this machine meet rarely.
  static std::uint32_t default_arena_count();
  static Status create(ResourcePtr upstream, std::uint32_t arenas, std::shared_ptr<ArenaMemoryResource>* out,
                       std::uint64_t pending_timeout_ns = PoolOptions{}.pending_timeout_ns);

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  std::uint64_t bytes_outstanding() const override { return stats().current_bytes; }
  Stats stats() const override;
  BlockState state_of(const Block& block) const override;
  Status reap_pending() override;

  bool supports_block_use_tracking() const override { return true; }
  Status prepare_block_use(const Block& block, StreamId stream, Access access) override;
  Status finish_block_use(const Block& block, StreamId stream, Access access) override;

  bool is_valid() const override {
    for (std::size_t i = 0; i < arenas_.size(); ++i) {
      if (ids_[i] != arenas_[i]->id() || !arenas_[i]->is_valid()) return false;
    }
    return ids_.size() == arenas_.size();
  }

  PoolUsage usage();
  Status trim(std::uint64_t* released);
  std::uint32_t arena_count() const { return static_cast<std::uint32_t>(arenas_.size()); }

 private:
  ArenaMemoryResource(const Resource& upstream, std::uint64_t pending_timeout_ns)
      : Resource(&upstream), pending_timeout_ns_(pending_timeout_ns) {}
  std::size_t own_arena() const;
  Status wait_for_room(const AllocRequest& request, Block* block, bool* found);
  // The pool that made the block, or null.
  PoolMemoryResource* maker_of(const Block& block) const;
  Status foreign(const Block& block) const;

  const std::uint64_t pending_timeout_ns_;
  std::vector<std::shared_ptr<PoolMemoryResource>> arenas_;
  std::vector<std::uint32_t> ids_;  // of the pools, in their order: found without touching the pools
};

}  // namespace tensormem
