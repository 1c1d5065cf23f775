// Owns: how physical memory is admitted: whoever wants pages asks a budget first, and tells it when they are gone.
// Must not know: pages, addresses, who asks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "ledger/budget_members.hpp"

namespace tensormem {

class Budget {
 public:
  virtual ~Budget() = default;

  // All of `bytes`, or `out_of_physical_memory(requested, available)` and nothing. May ask others to give back, so
  // callers hold no lock.
  virtual Status claim(std::uint64_t bytes) noexcept = 0;
  // The same for what is nice to have (pages made ahead): asks nobody to give back.
  virtual Status try_claim(std::uint64_t bytes) noexcept = 0;
  virtual void give_back(std::uint64_t bytes) noexcept = 0;
  virtual std::uint64_t limit() const noexcept = 0;
  virtual std::uint64_t used() const noexcept = 0;
  // Those in this process who hold memory of it that nobody uses: asked by `claim` before it refuses.
  BudgetMembers& members() noexcept { return members_; }
  // `member` draws on this one, and so on those it is a part of. Throws bad_alloc.
  void enlist(BudgetMember& member, BudgetMembership* membership) {
    membership->add(members_, member);
    for_each_larger([&](Budget& larger) { larger.enlist(member, membership); });
  }
  // Whether this one, or one that it is a part of, has more in use than it admits.
  bool is_exceeded() const noexcept {
    bool exceeded = used() > limit();
    for_each_larger([&](const Budget& larger) { exceeded = exceeded || larger.is_exceeded(); });
    return exceeded;
  }

 protected:
  // The ones of which this is a part: every claim takes as much of them.
  virtual std::span<const std::shared_ptr<Budget>> larger() const noexcept { return {}; }

 private:
  template <typename Visit>
  void for_each_larger(Visit visit) const {
    for (const std::shared_ptr<Budget>& each : larger()) visit(*each);
  }

  BudgetMembers members_;
};

using BudgetPtr = std::shared_ptr<Budget>;

struct BudgetCounts {
  std::uint64_t peak_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t total_count = 0;
};

// One limit in one process, which can change at any time. Lowered below what is used, it refuses until enough is back.
// A claim that does not fit asks the members; what comes back meanwhile is not for those who only try.
class LocalBudget final : public Budget {
 public:
  static constexpr std::uint64_t kUnlimited = ~0ULL >> 1;

  // `refusal` is what it refuses with: `out_of_physical_memory(requested, available)` for pages, or
  // `out_of_budget(requested, used, remaining, limit)`. `counts` is whether it keeps totals, which costs a little.
  explicit LocalBudget(std::uint64_t limit, Code refusal = Code::out_of_physical_memory,
                       std::vector<BudgetPtr> larger = {}, bool counts = false) noexcept
      : larger_(std::move(larger)), refusal_(refusal), counts_(counts), limit_(limit) {}

  Status claim(std::uint64_t bytes) noexcept override {
    std::uint64_t missing = take(bytes, 0);
    if (missing != 0 && bytes <= limit_.load(std::memory_order_relaxed)) missing = ask_members(bytes);
    if (missing != 0) return refuse(bytes);
    return larger_.empty() ? Status() : claim_larger(bytes, &Budget::claim);
  }
  Status try_claim(std::uint64_t bytes) noexcept override {
    if (take(bytes, asked_for_.load(std::memory_order_relaxed)) != 0) return refuse(bytes);
    return larger_.empty() ? Status() : claim_larger(bytes, &Budget::try_claim);
  }
  void give_back(std::uint64_t bytes) noexcept override {
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    for (const BudgetPtr& each : larger_) each->give_back(bytes);
  }
  std::uint64_t limit() const noexcept override { return limit_.load(std::memory_order_relaxed); }
  std::uint64_t used() const noexcept override { return used_.load(std::memory_order_relaxed); }
  void set_limit(std::uint64_t limit) noexcept { limit_.store(limit, std::memory_order_relaxed); }
  // All zero unless it counts.
  BudgetCounts counts() const noexcept { return {peak_.load(), total_bytes_.load(), total_count_.load()}; }

 protected:
  std::span<const BudgetPtr> larger() const noexcept override { return larger_; }

 private:
  // 0, and it is taken; or how much has to come back first. `kept` bytes are for others.
  std::uint64_t take(std::uint64_t bytes, std::uint64_t kept) noexcept {
    std::uint64_t before = used_.load(std::memory_order_relaxed);
    do {
      const std::uint64_t most = limit_.load(std::memory_order_relaxed);
      const std::uint64_t room = most - std::min(most, before + kept);
      if (bytes > room) return bytes - room + (before + kept > most ? before + kept - most : 0);
    } while (!used_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
    if (counts_) [[unlikely]]
      note(before + bytes, bytes);
    return 0;
  }
  void note(std::uint64_t used, std::uint64_t bytes) noexcept {
    std::uint64_t peak = peak_.load();
    while (used > peak && !peak_.compare_exchange_weak(peak, used)) {
    }
    total_bytes_.fetch_add(bytes);
    total_count_.fetch_add(1);
  }
  std::uint64_t ask_members(std::uint64_t bytes) noexcept {
    std::uint64_t missing = bytes;
    asked_for_.fetch_add(bytes);
    members().release_until([&] { return missing = take(bytes, 0); });
    if (missing != 0) missing = take(bytes, 0);
    asked_for_.fetch_sub(bytes);
    return missing;
  }
  // As much of each of the larger ones, or nothing anywhere.
  Status claim_larger(std::uint64_t bytes, Status (Budget::*how)(std::uint64_t) noexcept) noexcept {
    for (std::size_t i = 0; i < larger_.size(); ++i) {
      Status claimed = ((*larger_[i]).*how)(bytes);
      if (claimed.ok()) continue;
      while (i-- > 0) larger_[i]->give_back(bytes);
      used_.fetch_sub(bytes, std::memory_order_relaxed);
      return claimed;
    }
    return {};
  }
  Status refuse(std::uint64_t bytes) const noexcept {
    const std::uint64_t most = limit();
    const std::uint64_t used = this->used();
    const std::uint64_t left = most - std::min(most, used);
    if (refusal_ == Code::out_of_budget)
      return Status::fail(refusal_, "the budget has no room for it", bytes, used, left, most);
    return Status::fail(refusal_, "the physical limit is reached", bytes, left);
  }

  const std::vector<BudgetPtr> larger_;
  const Code refusal_;
  const bool counts_;
  std::atomic<std::uint64_t> limit_;
  std::atomic<std::uint64_t> used_{0};
  std::atomic<std::uint64_t> asked_for_{0};  // by claims that wait for members
  std::atomic<std::uint64_t> peak_{0};
  std::atomic<std::uint64_t> total_bytes_{0};
  std::atomic<std::uint64_t> total_count_{0};
};

}  // namespace tensormem
