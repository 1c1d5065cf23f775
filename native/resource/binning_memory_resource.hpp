// Owns: the choice of a resource by size: the smallest bin that a block fits in, and the upstream for what fits in
// none. Bins are added before the first block is out: a block must go back the way it came, and its size says which.
// Must not know: what the bins are.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "base/fork_guard.hpp"
#include "base/spinlock.hpp"
#include "resource/resource_adaptor.hpp"

namespace tensormem {

class BinningMemoryResource final : public ResourceAdaptor {
 public:
  explicit BinningMemoryResource(ResourcePtr upstream) : ResourceAdaptor(std::move(upstream)) {}

  // Refused while blocks are out, and for a size that has a bin.
  Status add_bin(std::uint64_t largest, ResourcePtr resource);
  std::vector<std::uint64_t> bin_sizes() const;

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  std::uint64_t bytes_outstanding() const override { return stats().current_bytes; }
  Stats stats() const override;
  BlockState state_of(const Block& block) const override { return home_of(block.nbytes).state_of(block); }
  Status reap_pending() override;
  bool is_valid() const override;

  bool supports_block_use_tracking() const override;
  Status prepare_block_use(const Block& block, StreamId stream, Access access) override {
    return home_of(block.nbytes).prepare_block_use(block, stream, access);
  }
  Status finish_block_use(const Block& block, StreamId stream, Access access) override {
    return home_of(block.nbytes).finish_block_use(block, stream, access);
  }

 private:
  struct Bin {
    std::uint64_t largest = 0;
    ResourcePtr resource;
  };

  Resource& home_of(std::uint64_t nbytes) const;

  std::vector<Bin> bins_;  // by size; changed only while nothing is out
  mutable Spinlock lock_;
  ForkGuard fork_guard_{lock_};
  Stats stats_;
  std::uint64_t asking_ = 0;    // allocations under way
  std::vector<Block> retired_;  // given back, not free yet, still counted
};

}  // namespace tensormem
