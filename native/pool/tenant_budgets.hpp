// Owns: one physical limit shared by the tenants of one process: who may have how much, who is asked to give back when
// there is no room, and exact counters of all that. First everybody above its guarantee is asked for what nobody uses,
// which costs nobody anything. The limit may itself be a part of a larger budget, of which every
// claim takes as much: so the tenants of several processes share one.
//   A tenant never passes its maximum. What the others are guaranteed and do not use yet stays free for them. Otherwise
//   who comes first is served first.
// Must not know: pages, pools, Python. The hooks of a tenant are called without any lock; they may claim and give back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_guard.hpp"
#include "pool/budget.hpp"
#include "pool/fair_share.hpp"

namespace tensormem {

struct TenantTerms {
  std::uint64_t guaranteed = 0;
  std::uint64_t maximum = LocalBudget::kUnlimited;
  std::uint32_t priority = 1;
};

// Asked for `wanted` bytes. More or less may come back; a failure ends the claim that asked, which then has nothing.
using GiveBackHook = std::function<Status(std::uint64_t wanted)>;

struct TenantCounters {
  std::uint64_t used = 0;
  std::uint64_t peak = 0;
  std::uint64_t refusals = 0;     // claims that found no room in the end
  std::uint64_t times_asked = 0;  // calls of `evict`
};

class TenantBudgets;

class TenantBudget final : public Budget {
 public:
  TenantBudget(std::shared_ptr<TenantBudgets> budgets, const TenantTerms& terms, GiveBackHook evict);
  ~TenantBudget() override;

  Status claim(std::uint64_t bytes) noexcept override;
  Status try_claim(std::uint64_t bytes) noexcept override;
  void give_back(std::uint64_t bytes) noexcept override;
  // The most it can ever have.
  std::uint64_t limit() const noexcept override;
  std::uint64_t used() const noexcept override { return counters().used; }
  std::span<const BudgetPtr> larger() const noexcept override;

  TenantTerms terms() const;
  TenantCounters counters() const;
  Status set_terms(const TenantTerms& terms);
  // Claims nothing any more, is guaranteed nothing, is asked for nothing. What it uses counts until it is given back.
  void retire();

 private:
  friend class TenantBudgets;

  const std::shared_ptr<TenantBudgets> budgets_;
  const GiveBackHook evict_;  // costs the tenant what it holds: asked by fair share
  // Guarded by the lock of `budgets_`.
  TenantTerms terms_;
  TenantCounters counters_;
  bool retired_ = false;
};

using TenantBudgetPtr = std::shared_ptr<TenantBudget>;

class TenantBudgets : public std::enable_shared_from_this<TenantBudgets> {
 public:
  explicit TenantBudgets(std::uint64_t limit, BudgetPtr larger = nullptr) : larger_(std::move(larger)), limit_(limit) {}

  // `out_of_physical_memory` when there is not as much left to guarantee.
  // `evict` may be null: then only idle memory of its members is asked for.
  Status add(const TenantTerms& terms, GiveBackHook evict, TenantBudgetPtr* tenant);
  // Not below what is guaranteed. Lowered below what is used, tenants are asked to give back; until they have, nobody
  // gets more than its guarantee.
  Status set_limit(std::uint64_t limit);
  std::uint64_t limit() const;
  // Asks tenants to give back `bytes` of what they use beyond their guarantees, as if the limit were lower by that.
  Status relieve(std::uint64_t bytes);
  // The same as the sum over all tenants, at every moment.
  TenantCounters totals() const;
  std::uint64_t guaranteed() const;
  bool is_valid() const;

 private:
  friend class TenantBudget;
  struct Need {
    std::uint64_t shortage = 0;   // what has to come back first; 0: there is room
    std::uint64_t available = 0;  // what the tenant could have at once
    bool own = false;             // only the tenant itself can help
    bool hopeless = false;        // nobody can
  };
  enum class Round : std::uint8_t { idle, fair, last_resort };
  struct Asked {
    TenantBudgetPtr tenant;
    std::uint64_t wanted = 0;
  };
  using Tenants = std::vector<TenantBudgetPtr>;

  // What somebody is asked for: room for `bytes` more of a tenant, or without one, that all keep to `limit`.
  struct Goal {
    TenantBudget* tenant = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t limit = 0;
  };

  Status claim(TenantBudget& tenant, std::uint64_t bytes);
  Status try_claim(TenantBudget& tenant, std::uint64_t bytes);
  Status claim_here(TenantBudget& tenant, std::uint64_t bytes);
  Status refusal(const TenantBudget& tenant, std::uint64_t bytes, const Need& need) const;
  void give_back(TenantBudget& tenant, std::uint64_t bytes);
  void give_back_here(TenantBudget& tenant, std::uint64_t bytes);
  bool take(TenantBudget& tenant, std::uint64_t bytes, Need* need);
  Need need_of(const TenantBudget& tenant, std::uint64_t bytes) const;
  std::uint64_t available_to(const TenantBudget& tenant) const;
  // Asks one after the other until the goal is reached or nobody is left.
  Status ask_around(const Goal& goal, Need* need, bool* done);
  Status ask(const Asked& asked, Round round);
  Asked next_to_ask(const Goal& goal, const Need& need, Round round, const Tenants& asked_before);
  bool is_above(std::uint64_t limit, Need* need) const;
  Tenants living() const;
  void use(TenantBudget& tenant, std::uint64_t used);
  void commit(TenantBudget& tenant, const TenantTerms& terms, std::uint64_t used);
  Status check_terms(const TenantTerms& terms, std::uint64_t guaranteed_by_others) const;
  Status set_terms(TenantBudget& tenant, const TenantTerms& terms);
  void retire(TenantBudget& tenant);
  void forget(TenantBudget& tenant);

  const BudgetPtr larger_;  // or none
  mutable std::mutex mutex_;
  ForkGuard fork_guard_{mutex_};
  std::uint64_t limit_;
  std::uint64_t guaranteed_ = 0;  // the sum of the guarantees
  std::uint64_t committed_ = 0;   // the sum of what each uses or is guaranteed, whichever is more
  TenantCounters totals_;
  std::vector<std::pair<TenantBudget*, std::weak_ptr<TenantBudget>>> tenants_;
};

}  // namespace tensormem
