#include "pool/tenant_budgets.hpp"

#include <algorithm>

#include "base/invariant.hpp"

namespace tensormem {

namespace {

std::uint64_t less(std::uint64_t from, std::uint64_t what) { return from - std::min(from, what); }

}  // namespace

// --- One tenant --------------------------------------------------------------------------------------------------

TenantBudget::TenantBudget(std::shared_ptr<TenantBudgets> budgets, const TenantTerms& terms, GiveBackHook evict)
    : budgets_(std::move(budgets)), evict_(std::move(evict)), terms_(terms) {}

TenantBudget::~TenantBudget() {
  TM_WALK(budgets_->is_valid());
  budgets_->forget(*this);
}

Status TenantBudget::claim(std::uint64_t bytes) noexcept { return budgets_->claim(*this, bytes); }

Status TenantBudget::try_claim(std::uint64_t bytes) noexcept { return budgets_->try_claim(*this, bytes); }

void TenantBudget::give_back(std::uint64_t bytes) noexcept { budgets_->give_back(*this, bytes); }

std::uint64_t TenantBudget::limit() const noexcept {
  const std::lock_guard lock(budgets_->mutex_);
  return std::min(terms_.maximum, budgets_->limit_);
}

std::span<const BudgetPtr> TenantBudget::larger() const noexcept {
  return {&budgets_->larger_, budgets_->larger_ == nullptr ? 0U : 1U};
}

TenantTerms TenantBudget::terms() const {
  const std::lock_guard lock(budgets_->mutex_);
  return terms_;
}

TenantCounters TenantBudget::counters() const {
  const std::lock_guard lock(budgets_->mutex_);
  return counters_;
}

Status TenantBudget::set_terms(const TenantTerms& terms) { return budgets_->set_terms(*this, terms); }

void TenantBudget::retire() { budgets_->retire(*this); }

// --- All of them -------------------------------------------------------------------------------------------------

Status TenantBudgets::check_terms(const TenantTerms& terms, std::uint64_t guaranteed_by_others) const {
  if (terms.priority == 0) return Status::fail(Code::invalid_argument, "a priority counts from 1");
  if (terms.guaranteed > terms.maximum)
    return Status::fail(Code::invalid_argument, "a tenant cannot be guaranteed more than its maximum");
  if (terms.guaranteed > less(limit_, guaranteed_by_others))
    return Status::fail(Code::out_of_physical_memory, "there is not as much left to guarantee", terms.guaranteed,
                        less(limit_, guaranteed_by_others));
  return {};
}

Status TenantBudgets::add(const TenantTerms& terms, GiveBackHook evict, TenantBudgetPtr* tenant) {
  // Outside the lock: should it be refused, its hook is dropped there.
  const auto fresh = std::make_shared<TenantBudget>(shared_from_this(), TenantTerms{}, std::move(evict));
  const std::lock_guard lock(mutex_);
  TM_TRY(check_terms(terms, guaranteed_));
  tenants_.emplace_back(fresh.get(), fresh);
  commit(*fresh, terms, 0);
  *tenant = fresh;
  return {};
}

Status TenantBudgets::set_terms(TenantBudget& tenant, const TenantTerms& terms) {
  const std::lock_guard lock(mutex_);
  if (tenant.retired_) return Status::fail(Code::use_after_release, "the tenant was unregistered", 0);
  TM_TRY(check_terms(terms, guaranteed_ - tenant.terms_.guaranteed));
  commit(tenant, terms, tenant.counters_.used);
  return {};
}

void TenantBudgets::retire(TenantBudget& tenant) {
  const std::lock_guard lock(mutex_);
  tenant.retired_ = true;
  commit(tenant, {.guaranteed = 0, .maximum = 0, .priority = tenant.terms_.priority}, tenant.counters_.used);
}

void TenantBudgets::forget(TenantBudget& tenant) {
  const std::lock_guard lock(mutex_);
  TM_ASSERT(tenant.counters_.used == 0);
  use(tenant, 0);
  commit(tenant, {}, 0);
  std::erase_if(tenants_, [&](const auto& each) { return each.first == &tenant; });
}

// The only place that changes what the sums are made of.
void TenantBudgets::commit(TenantBudget& tenant, const TenantTerms& terms, std::uint64_t used) {
  committed_ -= std::max(tenant.counters_.used, tenant.terms_.guaranteed);
  guaranteed_ -= tenant.terms_.guaranteed;
  tenant.terms_ = terms;
  tenant.counters_.used = used;
  guaranteed_ += terms.guaranteed;
  committed_ += std::max(used, terms.guaranteed);
}

void TenantBudgets::use(TenantBudget& tenant, std::uint64_t used) {
  totals_.used += used - tenant.counters_.used;
  commit(tenant, tenant.terms_, used);
  tenant.counters_.peak = std::max(tenant.counters_.peak, used);
  totals_.peak = std::max(totals_.peak, totals_.used);
}

void TenantBudgets::give_back(TenantBudget& tenant, std::uint64_t bytes) {
  give_back_here(tenant, bytes);
  if (larger_ != nullptr) larger_->give_back(bytes);
}

void TenantBudgets::give_back_here(TenantBudget& tenant, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  TM_ASSERT(bytes <= tenant.counters_.used);
  use(tenant, less(tenant.counters_.used, bytes));
}

std::uint64_t TenantBudgets::available_to(const TenantBudget& tenant) const {
  const std::uint64_t used = tenant.counters_.used;
  const std::uint64_t promised = less(tenant.terms_.guaranteed, used);
  const std::uint64_t room = std::min(promised + less(limit_, committed_), less(limit_, totals_.used));
  return std::min(room, less(tenant.terms_.maximum, used));
}

TenantBudgets::Need TenantBudgets::need_of(const TenantBudget& tenant, std::uint64_t bytes) const {
  const TenantTerms& terms = tenant.terms_;
  const std::uint64_t before = tenant.counters_.used;
  Need need;
  need.available = available_to(tenant);
  const std::uint64_t guaranteed_to_others = guaranteed_ - terms.guaranteed;
  if (bytes > terms.maximum || bytes > less(limit_, guaranteed_to_others)) {
    need.hopeless = true;
    return need;
  }
  const std::uint64_t after = before + bytes;
  if (after > terms.maximum) {
    need.own = true;
    need.shortage = after - terms.maximum;
    return need;
  }
  const std::uint64_t others = committed_ - std::max(before, terms.guaranteed);
  need.shortage = after <= terms.guaranteed ? less(totals_.used + bytes, limit_) : less(others + after, limit_);
  return need;
}

bool TenantBudgets::take(TenantBudget& tenant, std::uint64_t bytes, Need* need) {
  const std::lock_guard lock(mutex_);
  *need = need_of(tenant, bytes);
  if (need->hopeless || need->shortage != 0) return false;
  use(tenant, tenant.counters_.used + bytes);
  return true;
}

Status TenantBudgets::claim(TenantBudget& tenant, std::uint64_t bytes) {
  TM_TRY(claim_here(tenant, bytes));
  if (larger_ == nullptr) return {};
  Status status = larger_->claim(bytes);
  if (!status.ok()) give_back_here(tenant, bytes);
  return status;
}

Status TenantBudgets::try_claim(TenantBudget& tenant, std::uint64_t bytes) {
  Need need;
  if (!take(tenant, bytes, &need)) return refusal(tenant, bytes, need);
  if (larger_ == nullptr) return {};
  Status status = larger_->try_claim(bytes);
  if (!status.ok()) give_back_here(tenant, bytes);
  return status;
}

Status TenantBudgets::claim_here(TenantBudget& tenant, std::uint64_t bytes) {
  Need need;
  bool done = take(tenant, bytes, &need);
  if (done) [[likely]]
    return {};
  if (!need.hopeless && !is_asking(this)) TM_TRY(ask_around({&tenant, bytes, limit()}, &need, &done));
  if (done) return {};
  {
    const std::lock_guard lock(mutex_);
    tenant.counters_.refusals += tenant.retired_ ? 0 : 1;
    totals_.refusals += tenant.retired_ ? 0 : 1;
  }
  return refusal(tenant, bytes, need);
}

Status TenantBudgets::refusal(const TenantBudget& tenant, std::uint64_t bytes, const Need& need) const {
  const std::lock_guard lock(mutex_);
  if (tenant.retired_) return Status::fail(Code::use_after_release, "the tenant was unregistered", 0);
  const char* const why = need.own || bytes > tenant.terms_.maximum ? "the tenant's maximum is reached"
                                                                    : "the tenants' physical limit is reached";
  return Status::fail(Code::out_of_physical_memory, why, bytes, need.available);
}

// Idle memory first, of everybody; then what somebody would miss, by fair share and then by priority. Each tenant is
// asked once per round: what came back meanwhile and went to others is not asked for again.
Status TenantBudgets::ask_around(const Goal& goal, Need* need, bool* done) {
  for (const Round round : {Round::idle, Round::fair, Round::last_resort}) {
    Tenants before;
    while (true) {
      const Asked next = next_to_ask(goal, *need, round, before);
      if (next.tenant == nullptr) break;
      before.push_back(next.tenant);
      TM_TRY(ask(next, round));
      *done = goal.tenant != nullptr ? take(*goal.tenant, goal.bytes, need) : !is_above(goal.limit, need);
      if (*done || need->hopeless) return {};
    }
  }
  return {};
}

Status TenantBudgets::ask(const Asked& asked, Round round) {
  BudgetMembers& members = asked.tenant->members();
  if (round == Round::idle) {
    (void)members.release(asked.wanted);
    return {};
  }
  {
    const std::lock_guard lock(mutex_);
    ++asked.tenant->counters_.times_asked;
    ++totals_.times_asked;
  }
  const AskingScope asking(this);
  Status evicted = asked.tenant->evict_(asked.wanted);
  (void)members.release(asked.wanted);  // what it freed is in caches until now, also when it failed
  return evicted;
}

TenantBudgets::Tenants TenantBudgets::living() const {
  Tenants tenants;
  const std::lock_guard lock(mutex_);
  for (const auto& [raw, weak] : tenants_)
    if (auto strong = weak.lock(); strong != nullptr) tenants.push_back(std::move(strong));
  return tenants;
}

TenantBudgets::Asked TenantBudgets::next_to_ask(const Goal& goal, const Need& need, Round round,
                                                const Tenants& asked_before) {
  const Tenants tenants = living();  // let go outside the lock: the last reference may be ours
  std::vector<Claimant> claimants;
  std::size_t asking = kNobody;
  const std::lock_guard lock(mutex_);
  for (const TenantBudgetPtr& each : tenants) {
    const bool can = round == Round::idle ? !each->members().empty() : each->evict_ != nullptr;
    const bool fresh = std::find(asked_before.begin(), asked_before.end(), each) == asked_before.end();
    const bool helps = each.get() == goal.tenant || !need.own;
    if (each.get() == goal.tenant) asking = claimants.size();
    claimants.push_back({each->counters_.used, each->terms_.guaranteed, each->terms_.maximum, each->terms_.priority,
                         can && fresh && helps && !each->retired_});
  }
  if (need.own) {
    const bool can = round != Round::last_resort && asking != kNobody && claimants[asking].can_be_asked;
    return can ? Asked{tenants[asking], need.shortage} : Asked{};
  }
  if (round == Round::idle) {
    for (std::size_t i = 0; i < claimants.size(); ++i)
      if (const Claimant& each = claimants[i]; each.can_be_asked && each.used > each.guaranteed)
        return {tenants[i], std::min(need.shortage, each.used - each.guaranteed)};
    return {};
  }
  const AskRound how = round == Round::fair ? AskRound::fair : AskRound::last_resort;
  const std::vector<Ask> asks = whom_to_ask(claimants, goal.limit, asking, goal.bytes, need.shortage, how);
  return asks.empty() ? Asked{} : Asked{tenants[asks.front().who], asks.front().bytes};
}

bool TenantBudgets::is_above(std::uint64_t limit, Need* need) const {
  const std::lock_guard lock(mutex_);
  need->shortage = less(committed_, limit);
  return need->shortage != 0;
}

Status TenantBudgets::set_limit(std::uint64_t limit) {
  {
    const std::lock_guard lock(mutex_);
    if (limit < guaranteed_)
      return Status::fail(Code::out_of_physical_memory, "the tenants are guaranteed more than that", guaranteed_,
                          limit);
    limit_ = limit;
  }
  Need need;
  bool done = !is_above(limit, &need);
  if (!done && !is_asking(this)) TM_TRY(ask_around({nullptr, 0, limit}, &need, &done));
  return {};
}

Status TenantBudgets::relieve(std::uint64_t bytes) {
  Need need;
  (void)is_above(0, &need);
  const std::uint64_t limit = less(need.shortage, bytes);
  bool done = !is_above(limit, &need);
  if (!done && !is_asking(this)) TM_TRY(ask_around({nullptr, 0, limit}, &need, &done));
  return {};
}

std::uint64_t TenantBudgets::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

std::uint64_t TenantBudgets::guaranteed() const {
  const std::lock_guard lock(mutex_);
  return guaranteed_;
}

TenantCounters TenantBudgets::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

bool TenantBudgets::is_valid() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t used = 0;
  std::uint64_t guaranteed = 0;
  std::uint64_t committed = 0;
  for (const auto& [tenant, weak] : tenants_) {
    used += tenant->counters_.used;
    guaranteed += tenant->terms_.guaranteed;
    committed += std::max(tenant->counters_.used, tenant->terms_.guaranteed);
    if (tenant->counters_.used > tenant->counters_.peak) return false;
  }
  return used == totals_.used && guaranteed == guaranteed_ && committed == committed_ && totals_.used <= totals_.peak;
}

}  // namespace tensormem
