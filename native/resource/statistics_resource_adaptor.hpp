// Owns: counters of what passes through, with scopes: `push` starts counting afresh on top, `pop` ends that and lets
// the outer scope keep what it saw: its current and totals grow by the inner's, its peak is the highest that was
// reached. Must not know: what is counted for.
#pragma once

#include <vector>

#include "base/fork_guard.hpp"
#include "base/spinlock.hpp"
#include "resource/resource_adaptor.hpp"

namespace tensormem {

// Signed: a scope may see more freed than allocated.
struct ScopeCounters {
  std::int64_t current_bytes = 0;
  std::int64_t current_count = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t peak_count = 0;
  std::int64_t total_bytes = 0;
  std::int64_t total_count = 0;
};

class StatisticsResourceAdaptor final : public ResourceAdaptor {
 public:
  explicit StatisticsResourceAdaptor(ResourcePtr upstream) : ResourceAdaptor(std::move(upstream)), scopes_(1) {}

  Status do_allocate(const AllocRequest& request, Block* block) override;
  Status do_deallocate(const Block& block, StreamId stream, BlockState* end) override;

  ScopeCounters counters() const;
  // Both give the counters of the scope that was on top before.
  ScopeCounters push();
  // The outermost scope stays: popping it is refused.
  Status pop(ScopeCounters* ended);
  bool is_valid() const override;

 private:
  mutable Spinlock lock_;
  ForkGuard fork_guard_{lock_};
  std::vector<ScopeCounters> scopes_;  // never empty; the last one counts
};

}  // namespace tensormem
