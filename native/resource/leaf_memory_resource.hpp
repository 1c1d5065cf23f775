// Owns: what every leaf is: it takes memory from a source, usable at once by every stream, keeps the table of its
// blocks, tracks their uses, and gives a block back to the source only when every stream that used it has passed. Must
// not know: what the source is (a driver, a callback), suballocation, budgets. Subclasses say how to `take` and
// `give_back`, and call `finish` in their destructor.
#pragma once

#include <atomic>
#include <vector>

#include "alloc/block_table.hpp"
#include "alloc/generation.hpp"
#include "base/fork_guard.hpp"
#include "base/mutex.hpp"
#include "order/retired_list.hpp"
#include "resource/resource.hpp"

namespace tensormem {

class LeafMemoryResource : public Resource {
 public:
  LeafMemoryResource(Driver& driver, std::int32_t device)
      : LeafMemoryResource(driver, device, space_of(driver, device)) {}
  LeafMemoryResource(Driver& driver, std::int32_t device, const MemorySpace& space)
      : Resource(driver, device, space), order_(driver, device) {}
  // Its source is another resource.
  explicit LeafMemoryResource(const Resource* upstream)
      : Resource(upstream), order_(upstream->driver(), upstream->device()) {}

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  std::uint64_t bytes_outstanding() const override;
  Stats stats() const override;
  BlockState state_of(const Block& block) const override;
  Status reap_pending() override;

  bool supports_block_use_tracking() const override { return true; }
  Status prepare_block_use(const Block& block, StreamId stream, Access access) override;
  Status finish_block_use(const Block& block, StreamId stream, Access access) override;

  bool is_valid() const override;

 protected:
  // Called without our lock, and with a BlockingRegion open where it may be slow.
  virtual Status take(const AllocRequest& request, std::uint64_t* address) = 0;
  virtual Status give_back(const BlockEntry& entry) = 0;
  // Whether `take` heeds `request.zeroed`.
  virtual bool can_zero(const AllocRequest& /*request*/) const { return false; }
  // Whether a refusal to take memory back changed nothing, so that `reap_pending` may ask again.
  virtual bool may_ask_again() const { return true; }
  // Waits for what is retired and gives it back.
  void finish();

 private:
  Status take_politely(const AllocRequest& request, std::uint64_t* address);
  Status give_back_politely(const BlockEntry& entry);
  void reap_a_few();
  Status allocate_or_reap(const AllocRequest& request, std::uint64_t* address);
  Status wait_for(const Uses& others, StreamId stream);
  Status order_end(StreamId stream, Uses* until);
  // With the lock: the entry of a live block, or why there is none.
  Status find_live(const Block& block, BlockEntry** entry);
  void revive(std::uint64_t address);
  Status free_now(std::uint64_t address);
  Status free_all(const std::vector<std::uint64_t>& addresses);
  void keep_charged(const BlockEntry& entry);
  void give_back_orphans();

  StreamOrder order_;
  mutable Mutex mutex_;  // guards everything below; never held over the source or a wait
  ForkGuard fork_guard_{mutex_};
  BlockTable table_;
  GenerationSource generations_;
  RetiredList<std::uint64_t> retired_;
  std::atomic<bool> any_retired_{false};  // a hint for those who do not have the lock
  Stats stats_;
};

}  // namespace tensormem
