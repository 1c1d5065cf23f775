// Owns: guarded blocks. Every block gets guard bytes on both sides and is filled with poison; given back, it is looked
// at, poisoned again and kept from reuse for a while (quarantine).
//   Damaged guards when a block is given back: `out_of_bounds`, and the block is taken back all the same (it goes into
//   quarantine), so that nothing leaks. Damage in quarantine, seen by `check_all`, when newer blocks push one out, and
//   at the end, is a write after the free. A double or stale free is `use_after_free`, by a table of our own.
//   `bytes_outstanding` counts live and retired blocks as their owners asked for them; quarantined ones are counted by
//   `quarantined_bytes`. When the upstream runs short, the quarantine gives way.
// Must not know: what a stack is, who reads reports. Hooks are called without any lock of ours.
#pragma once

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "alloc/block_table.hpp"
#include "base/fork_guard.hpp"
#include "order/retired_list.hpp"
#include "resource/guard_reports.hpp"
#include "resource/resource_adaptor.hpp"

namespace tensormem {

struct DebugGuardHooks {
  StackHooks stacks;
  GuardReports::Hook report;  // may be empty; hears of every finding but those that `check_all` gives
};

class DebugGuardResourceAdaptor final : public ResourceAdaptor {
 public:
  // The options have passed `check_guard_options`.
  DebugGuardResourceAdaptor(ResourcePtr upstream, const DebugGuardOptions& options, DebugGuardHooks hooks = {});
  ~DebugGuardResourceAdaptor() override;

  Status do_allocate(const AllocRequest& request, Block* block) override;
  // `*end` is set for `out_of_bounds` too: that block was taken back.
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  std::uint64_t bytes_outstanding() const override;
  Stats stats() const override;
  BlockState state_of(const Block& block) const override;
  // Looks at the blocks whose stream has passed by now; the first damage is the failure, after all were looked at.
  Status reap_pending() override { return reap(true); }
  // Tracked here, whether the upstream can or not: it gets a block back when all uses are over.
  bool supports_block_use_tracking() const override { return true; }
  Status prepare_block_use(const Block& block, StreamId stream, Access access) override;
  Status finish_block_use(const Block& block, StreamId stream, Access access) override;

  // Looks at every block, live and quarantined, and appends what is damaged, and what was found in the background since
  // the last call. A failure is the driver's: not all could be looked at. Retired blocks, and those whose stream has
  // not reached their beginning, are left for later.
  Status check_all(std::vector<GuardFinding>* findings);
  // Everything in quarantine is looked at and goes back upstream.
  Status flush_quarantine() { return shrink_to(0, 0); }

  const GuardReports& reports() const { return reports_; }
  std::uint64_t quarantined_bytes() const;
  std::uint64_t quarantined_count() const;
  bool is_valid() const override;

 private:
  struct GuardedBlock;
  struct Pin {
    GuardedBlock* guarded;
    GuardedMemory memory;
    bool freed;
    bool damaged;
  };

  // Allocation.
  Status padded(const AllocRequest& request, AllocRequest* larger, std::uint64_t* front) const;
  Status allocate_upstream(const AllocRequest& larger, std::uint64_t nbytes, Block* block);
  void describe(const AllocRequest& request, std::uint64_t front, GuardedBlock* guarded) const;
  Status prepare(GuardedBlock* guarded, StreamId stream);
  Status insert(GuardedBlock* guarded);

  // Deallocation: retire, then settle when the stream has passed.
  Status find_live(const Block& block, BlockEntry** entry);  // with the lock
  Status retire(const Block& block, StreamId stream, GuardedBlock** guarded, Uses* until);
  void revive(GuardedBlock* guarded);
  Status order_end(StreamId stream, Uses* until, bool* passed);
  Status wait_for(const Uses& others, StreamId stream);
  // `told`: the caller gets the failure. `*examined` false: the driver failed, and the block is retired as before.
  Status settle(GuardedBlock* guarded, bool told, bool* examined);
  Status settle_all(const std::vector<GuardedBlock*>& passed, bool told);
  Status reap(bool told);

  // Quarantine.
  void quarantine(GuardedBlock* guarded);
  Status shrink_to(std::uint64_t max_bytes, std::uint64_t max_count);
  GuardedBlock* take_victim(std::uint64_t max_bytes, std::uint64_t max_count);
  Status release(GuardedBlock* guarded);
  void quarantine_again(GuardedBlock* guarded);
  // Sends the oldest upstream, at least `nbytes` of them if there are; how many bytes that were.
  std::uint64_t release_some(std::uint64_t nbytes);

  // Inspection.
  std::vector<Pin> pin_all();
  void unpin_all(const std::vector<Pin>& pins);
  Status check(Pin* pin, std::vector<GuardFinding>* findings);
  Status file(const GuardedBlock& guarded, bool freed, const std::vector<GuardDamage>& damage, bool told);

  const DebugGuardOptions options_;
  const StackHooks stacks_;
  const GuardBands bands_;
  GuardReports reports_;
  StreamOrder order_;
  mutable std::mutex mutex_;  // guards everything below; never held over the upstream, a hook or a wait
  ForkGuard fork_guard_{mutex_};
  BlockTable table_;  // by the owner's address; `uses` is the GuardedBlock
  RetiredList<GuardedBlock*> retired_;
  std::vector<GuardedBlock*> unexamined_;  // their stream has passed, but the driver failed when they were looked at
  std::deque<GuardedBlock*> quarantine_;   // oldest first
  std::uint64_t quarantined_bytes_ = 0;
  Stats stats_;
};

}  // namespace tensormem
