// Owns: the leaf over a driver's plain allocation: host, pinned, managed and GPU memory that is usable at once by every
// stream. Keeps the table of its blocks, tracks their uses, and gives a block back to the driver only when every stream
// that used it has passed.
// Must not know: which driver it is, suballocation, budgets.
#pragma once

#include <mutex>
#include <vector>

#include "alloc/block_table.hpp"
#include "alloc/generation.hpp"
#include "order/retired_list.hpp"
#include "resource/resource.hpp"

namespace tensormem {

class PlainMemoryResource final : public Resource {
 public:
  PlainMemoryResource(Driver& driver, std::int32_t device, const AllocationOptions& options);
  ~PlainMemoryResource() override;

  Status allocate(const AllocRequest& request, Block* block) override;
  Status deallocate(const Block& block, StreamId stream, BlockState* end) override;
  std::uint64_t bytes_outstanding() const override;
  Stats stats() const override;
  BlockState state_of(const Block& block) const override;
  Status reap_pending() override;

  bool supports_block_use_tracking() const override { return true; }
  Status prepare_block_use(const Block& block, StreamId stream, Access access) override;
  Status finish_block_use(const Block& block, StreamId stream, Access access) override;

  bool is_valid() const;

 private:
  AllocationOptions options_for(std::uint64_t alignment) const;
  Status take_from_driver(std::uint64_t nbytes, std::uint64_t alignment, std::uint64_t* address);
  Status give_to_driver(const BlockEntry& entry);
  Status allocate_or_reap(const AllocRequest& request, std::uint64_t* address);
  Status wait_for(const Uses& others, StreamId stream);
  // With the lock: the entry of a live block, or why there is none.
  Status find_live(const Block& block, BlockEntry** entry);
  void revive(std::uint64_t address);
  Status free_now(std::uint64_t address);
  Status free_all(const std::vector<std::uint64_t>& addresses);
  void keep_charged(const BlockEntry& entry);

  const AllocationOptions options_;
  StreamOrder order_;
  mutable std::mutex mutex_;  // guards everything below; never held over a driver's allocation or a wait
  BlockTable table_;
  GenerationSource generations_;
  RetiredList<std::uint64_t> retired_;
  Stats stats_;
};

}  // namespace tensormem
