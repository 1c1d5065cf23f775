// Owns: the charge of a budget for what passes: what is charged is what was asked for and not yet really free, and what
// was promised by `reserve`. The budget is the adaptor's own, or one that other makers of memory draw on too.
//   More than the limit at once: refused without touching the upstream. No room: whoever draws on the budget is asked
//   to reap or give up what is idle, then refuse. The limit may change at any time; lowered below what is charged, it
//   refuses until enough has come back.
// Must not know: what the memory is for, or who else draws on the budget.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_guard.hpp"
#include "pool/budget.hpp"
#include "resource/resource_adaptor.hpp"

namespace tensormem {

class LimitingResourceAdaptor final : public ResourceAdaptor, public BudgetMember {
 public:
  // Both throw bad_alloc. A budget of its own:
  LimitingResourceAdaptor(ResourcePtr upstream, std::uint64_t limit)
      : LimitingResourceAdaptor(std::move(upstream), std::make_shared<LocalBudget>(limit, Code::out_of_budget)) {}
  // One that others draw on too:
  LimitingResourceAdaptor(ResourcePtr upstream, BudgetPtr budget)
      : ResourceAdaptor(std::move(upstream)), budget_(std::move(budget)) {
    budget_->enlist(*this, &membership_);
  }

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;
  // Two numbers that others may be changing: between the two looks a promise may have been made.
  std::uint64_t bytes_outstanding() const override {
    const std::uint64_t in_all = charged();
    const std::uint64_t for_promises = promised();
    return in_all > for_promises ? in_all - for_promises : 0;
  }
  Status reap_pending() override;
  // What was freed on streams that have passed since.
  std::uint64_t release_idle(std::uint64_t wanted) noexcept override;

  // Promises are charged too.
  bool is_valid() const override { return promised() <= charged() && ResourceAdaptor::is_valid(); }

  const BudgetPtr& budget() const { return budget_; }
  std::uint64_t limit() const { return budget_->limit(); }
  // Only for a budget of its own.
  void set_limit(std::uint64_t limit) { static_cast<LocalBudget&>(*budget_).set_limit(limit); }
  // Blocks and promises together, and what others drew on the same budget.
  std::uint64_t charged() const { return budget_->used(); }
  std::uint64_t promised() const { return promised_.load(std::memory_order_relaxed); }

  // A promise of `nbytes` for allocations to come; each draws from it instead of the common room.
  Status promise(std::uint64_t nbytes);
  // No more than what is still promised.
  void withdraw_promise(std::uint64_t nbytes);
  // The bytes are part of a promise already: they become a block, or go back to the promise.
  Status allocate_promised(const AllocRequest& request, Block* block);

 private:
  std::uint64_t settle_retired();

  const BudgetPtr budget_;
  std::atomic<std::uint64_t> promised_{0};
  std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::vector<Block> retired_;   // freed by their owner, still used by a stream, still charged
  BudgetMembership membership_;  // the youngest: asked only while all of the above is there
};

}  // namespace tensormem
