#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "pool/tenant_budgets.hpp"
#include "tests/check.hpp"

using namespace tensormem;

namespace {

using BudgetsPtr = std::shared_ptr<TenantBudgets>;

TenantBudgetPtr add(const BudgetsPtr& budgets, const TenantTerms& terms = {}, GiveBackHook evict = nullptr) {
  TenantBudgetPtr tenant;
  TM_CHECK(budgets->add(terms, std::move(evict), &tenant).ok());
  return tenant;
}

// A tenant that gives back what it is asked for, as far as it has it, and remembers the asks.
struct Yielding {
  TenantBudgetPtr tenant;
  std::vector<std::uint64_t> asks;

  Yielding(const BudgetsPtr& budgets, const TenantTerms& terms, std::uint64_t use,
           std::vector<const Yielding*>* order) {
    tenant = add(budgets, terms, [this, order](std::uint64_t wanted) {
      asks.push_back(wanted);
      order->push_back(this);
      tenant->give_back(std::min(wanted, tenant->used()));
      return Status();
    });
    TM_CHECK(tenant->claim(use).ok());
  }
  ~Yielding() { tenant->give_back(tenant->used()); }
};

// Bytes of a budget that nobody uses.
struct IdleBytes final : BudgetMember {
  Budget& budget;
  std::uint64_t idle;
  BudgetMembership membership;

  IdleBytes(Budget& of, std::uint64_t nbytes) : budget(of), idle(nbytes) { of.enlist(*this, &membership); }
  std::uint64_t release_idle(std::uint64_t wanted) noexcept override {
    const std::uint64_t given = std::min(idle, wanted);
    idle -= given;
    budget.give_back(given);
    return given;
  }
};

using Order = std::vector<const Yielding*>;
using Shares = std::vector<std::uint64_t>;

bool refuses(Budget& budget, std::uint64_t bytes, std::uint64_t available) {
  const Status status = budget.claim(bytes);
  return status.code() == Code::out_of_physical_memory && status.failure().facts[0] == bytes &&
         status.failure().facts[1] == available;
}

}  // namespace

TM_TEST("fair shares pour what is not guaranteed by priority, and again what somebody does not need") {
  const std::vector<Claimant> three{{100, 10, 1000, 1, true}, {100, 0, 1000, 3, true}, {5, 0, 1000, 4, true}};
  // 90 above the guarantee: the third needs 5 of its 45; of the other 85 the first gets a quarter.
  TM_CHECK((fair_shares(three, 100, kNobody, 0) == Shares{10 + 21, 63, 5}));
  // The requester counts with what it wants, at most its maximum.
  TM_CHECK((fair_shares({{0, 0, 20, 1, true}, {100, 0, 1000, 1, true}}, 100, 0, 500) == Shares{20, 80}));
  TM_CHECK((fair_shares({{50, 60, 90, 1, true}, {70, 60, 90, 1, true}}, 100, kNobody, 0) == Shares{60, 60}));
  TM_CHECK(fair_shares({}, 100, kNobody, 0).empty());
}

TM_TEST("numbers that another process made up divide by nothing and wrap nowhere") {
  const std::uint64_t huge = ~0ULL;
  const std::vector<Claimant> wild{{huge, huge, 0, 1, true}, {huge, 0, huge, ~0U, true}, {1, 0, huge, 1, true}};
  TM_CHECK(fair_shares(wild, huge, 2, huge).size() == 3);
  for (const Ask& ask : whom_to_ask(wild, 10, 2, huge, 7, AskRound::last_resort)) TM_CHECK(ask.bytes <= 7);
}

TM_TEST("a tenant never passes its maximum, and what others are guaranteed stays free for them") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  const auto first = add(budgets, {.guaranteed = 0, .maximum = 80, .priority = 1});
  const auto second = add(budgets, {.guaranteed = 40, .maximum = 1000, .priority = 1});
  TM_CHECK(refuses(*first, 81, 60) && refuses(*first, 61, 60));
  TM_CHECK(first->claim(60).ok() && refuses(*first, 1, 0));
  TM_CHECK(second->claim(40).ok() && refuses(*second, 1, 0));
  second->give_back(10);
  TM_CHECK(refuses(*first, 1, 0));  // still guaranteed to the second
  TM_CHECK(second->claim(10).ok());
  first->give_back(60);
  TM_CHECK(second->claim(60).ok() && second->used() == 100 && second->limit() == 100 && first->limit() == 80);
  TM_CHECK(budgets->totals().used == 100 && budgets->totals().peak == 100 && budgets->totals().refusals == 5);
  TM_CHECK(budgets->is_valid());
  second->give_back(100);
}

TM_TEST("terms that cannot be kept are refused and change nothing") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  const auto tenant = add(budgets, {.guaranteed = 70, .maximum = 100, .priority = 1});
  TenantBudgetPtr none;
  TM_CHECK(budgets->add({.guaranteed = 31, .maximum = 100, .priority = 1}, {}, &none).code() ==
           Code::out_of_physical_memory);
  TM_CHECK(budgets->add({.guaranteed = 3, .maximum = 2, .priority = 1}, {}, &none).code() == Code::invalid_argument);
  TM_CHECK(budgets->add({.guaranteed = 0, .maximum = 2, .priority = 0}, {}, &none).code() == Code::invalid_argument);
  TM_CHECK(budgets->set_limit(69).code() == Code::out_of_physical_memory);
  TM_CHECK(tenant->set_terms({.guaranteed = 101, .maximum = 200, .priority = 1}).code() ==
           Code::out_of_physical_memory);
  TM_CHECK(none == nullptr && budgets->limit() == 100 && budgets->guaranteed() == 70);
  TM_CHECK(tenant->set_terms({.guaranteed = 100, .maximum = 200, .priority = 2}).ok() && budgets->guaranteed() == 100);
  TM_CHECK(budgets->is_valid());
}

TM_TEST("the lowest priority is asked first, then who is furthest above its share, and only for what is missing") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  Order order;
  Yielding high(budgets, {.guaranteed = 0, .maximum = 100, .priority = 9}, 5, &order);
  Yielding much(budgets, {.guaranteed = 10, .maximum = 100, .priority = 2}, 50, &order);
  Yielding some(budgets, {.guaranteed = 10, .maximum = 100, .priority = 2}, 30, &order);
  Yielding low(budgets, {.guaranteed = 0, .maximum = 100, .priority = 1}, 15, &order);
  const auto asking = add(budgets, {.guaranteed = 0, .maximum = 100, .priority = 9});
  TM_CHECK(asking->claim(20).ok());
  // 80 above the guarantees: 20 and 5 for the two that stay below their part, 20 for the one that wants no more, and of
  // the other 35 a third for the low one.
  TM_CHECK((order == Order{&low, &much}) && low.asks.front() == 4 && much.asks.front() == 16);
  TM_CHECK(low.tenant->used() == 11 && much.tenant->used() == 34 && high.asks.empty() && some.asks.empty());
  TM_CHECK(budgets->totals().used == 100 && asking->used() == 20 && budgets->totals().times_asked == 2);
  asking->give_back(20);
}

TM_TEST("nobody is asked below its guarantee or its share: then the claim fails and says what there is") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  Order order;
  Yielding other(budgets, {.guaranteed = 0, .maximum = 100, .priority = 1}, 50, &order);
  Yielding self(budgets, {.guaranteed = 50, .maximum = 100, .priority = 1}, 50, &order);
  TM_CHECK(refuses(*self.tenant, 101, 0) && order.empty());  // nobody could help
  // Above the guarantee are 50, of which each may have 25.
  TM_CHECK(refuses(*self.tenant, 30, 25) && order == Order{&other} && other.tenant->used() == 25);
  TM_CHECK(self.tenant->used() == 50 && self.tenant->claim(25).ok() && self.tenant->claim(1).ok());
  // Above its own share, it is asked for its own.
  TM_CHECK(order == (Order{&other, &self}) && self.asks.front() == 1 && self.tenant->used() == 75);
}

TM_TEST("where somebody gives nothing back, lower priorities stand in for it, and equal ones do not") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  Order order;
  const auto stubborn = add(budgets, {.guaranteed = 0, .maximum = 100, .priority = 5});
  TM_CHECK(stubborn->claim(60).ok());
  Yielding low(budgets, {.guaranteed = 15, .maximum = 100, .priority = 1}, 20, &order);
  Yielding equal(budgets, {.guaranteed = 0, .maximum = 100, .priority = 5}, 20, &order);
  const auto asking = add(budgets, {.guaranteed = 0, .maximum = 100, .priority = 5});
  TM_CHECK(asking->claim(5).ok() && order == Order{&low} && low.tenant->used() == 15);
  TM_CHECK(refuses(*asking, 1, 0) && low.tenant->used() == 15 && equal.tenant->used() == 20);
  asking->give_back(5);
  stubborn->give_back(60);
}

TM_TEST("who is above its own share is asked for its own") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  Order order;
  Yielding other(budgets, {.guaranteed = 0, .maximum = 100, .priority = 1}, 30, &order);
  Yielding greedy(budgets, {.guaranteed = 0, .maximum = 100, .priority = 1}, 70, &order);
  TM_CHECK(greedy.tenant->claim(10).ok());
  TM_CHECK(order == Order{&greedy} && greedy.tenant->used() == 70 && other.tenant->used() == 30);
}

TM_TEST("at its maximum a tenant alone can help itself") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  Order order;
  Yielding other(budgets, {.guaranteed = 0, .maximum = 100, .priority = 1}, 50, &order);
  Yielding capped(budgets, {.guaranteed = 20, .maximum = 20, .priority = 1}, 20, &order);
  TM_CHECK(capped.tenant->claim(5).ok());
  TM_CHECK(order == Order{&capped} && capped.asks == std::vector<std::uint64_t>{5} && capped.tenant->used() == 20);
}

TM_TEST("idle memory of everybody is taken before anybody loses something") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  TenantBudgetPtr keeper;
  int evicted = 0;
  keeper = add(budgets, {.guaranteed = 0, .maximum = 100, .priority = 9}, [&](std::uint64_t) {
    ++evicted;
    return Status();
  });
  TM_CHECK(keeper->claim(60).ok());
  IdleBytes cache(*keeper, 30);
  const auto asking = add(budgets);
  TM_CHECK(asking->claim(60).ok() && cache.idle == 10 && evicted == 0 && keeper->used() == 40);
  TM_CHECK(asking->claim(10).ok() && cache.idle == 0 && evicted == 0 && keeper->used() == 30);
  asking->give_back(10);
  asking->give_back(60);
  keeper->give_back(30);
}

TM_TEST("idle memory of tenants goes to others under the larger budget") {
  const auto larger = std::make_shared<LocalBudget>(100);
  const auto budgets = std::make_shared<TenantBudgets>(100, larger);
  const auto keeper = add(budgets, {.guaranteed = 60, .maximum = 100, .priority = 1});
  TM_CHECK(keeper->claim(60).ok());
  IdleBytes cache(*keeper, 30);
  TM_CHECK(larger->claim(70).ok() && cache.idle == 0 && keeper->used() == 30 && larger->used() == 100);
  larger->give_back(70);
  keeper->give_back(30);
}

TM_TEST("a lowered limit asks for what is too much, and until that is back gives what is guaranteed and no more") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  Order order;
  Yielding big(budgets, {.guaranteed = 0, .maximum = 100, .priority = 1}, 60, &order);
  const auto stubborn = add(budgets, {.guaranteed = 20, .maximum = 100, .priority = 1});
  TM_CHECK(stubborn->claim(30).ok());
  TM_CHECK(budgets->set_limit(50).ok());
  // Shares of 50: 20 are guaranteed; of the other 30 the stubborn one wants 10.
  TM_CHECK(order == Order{&big} && big.tenant->used() == 20 && budgets->totals().used == 50);
  TM_CHECK(budgets->set_limit(30).ok());
  TM_CHECK(big.tenant->used() == 5 && budgets->totals().used == 35);  // nobody falls below its share
  TM_CHECK(refuses(*stubborn, 1, 0));
  stubborn->give_back(20);
  TM_CHECK(stubborn->claim(10).ok() && budgets->totals().used <= 30);
  stubborn->give_back(20);
  TM_CHECK(budgets->is_valid());
}

TM_TEST("a hook may claim and give back; what it claims asks nobody") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  TenantBudgetPtr victim;
  int depth = 0;
  int deepest = 0;
  victim = add(budgets, {}, [&](std::uint64_t wanted) {
    deepest = std::max(deepest, ++depth);
    TM_CHECK(victim->claim(1000).code() == Code::out_of_physical_memory);
    TM_CHECK(victim->claim(1).code() == Code::out_of_physical_memory);
    victim->give_back(wanted + 1);
    TM_CHECK(victim->claim(1).ok());
    --depth;
    return Status();
  });
  TM_CHECK(victim->claim(100).ok());
  const auto asking = add(budgets);
  TM_CHECK(asking->claim(10).ok() && deepest == 1);
  TM_CHECK(victim->used() == 90 && asking->used() == 10 && budgets->is_valid());
  asking->give_back(10);
  victim->give_back(90);
}

TM_TEST("a hook that fails ends the claim with its failure and nothing half done") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  const auto victim = add(budgets, {}, [](std::uint64_t) { return Status::fail(Code::callback_failed, "no"); });
  TM_CHECK(victim->claim(100).ok());
  const auto asking = add(budgets);
  TM_CHECK(asking->claim(10).code() == Code::callback_failed);
  TM_CHECK(asking->used() == 0 && budgets->totals().used == 100 && budgets->is_valid());
  victim->give_back(100);
}

TM_TEST("a retired tenant claims nothing and counts until it has given everything back") {
  const auto budgets = std::make_shared<TenantBudgets>(100);
  const auto leaving = add(budgets, {.guaranteed = 50, .maximum = 100, .priority = 1});
  TM_CHECK(leaving->claim(30).ok());
  leaving->retire();
  TM_CHECK(leaving->claim(1).code() == Code::use_after_release);
  TM_CHECK(leaving->set_terms({}).code() == Code::use_after_release);
  const auto next = add(budgets, {.guaranteed = 70, .maximum = 100, .priority = 1});
  TM_CHECK(next->claim(70).ok() && refuses(*next, 1, 0));
  leaving->give_back(30);
  TM_CHECK(next->claim(30).ok() && budgets->is_valid());
  next->give_back(100);
}

TM_TEST("tenants come and go while others ask, and all sums stay exact under eight threads") {
  const auto budgets = std::make_shared<TenantBudgets>(1000);
  std::atomic<bool> broken{false};
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 8; ++number) {
    threads.emplace_back([&, number] {
      std::atomic<std::uint64_t> mine{0};
      TenantBudgetPtr tenant;
      std::mutex giving;
      const auto give = [&](std::uint64_t wanted) {
        const std::lock_guard lock(giving);
        const std::uint64_t part = std::min(wanted, mine.load());
        mine -= part;
        if (part != 0) tenant->give_back(part);
        return Status();
      };
      for (int round = 0; round < 20; ++round) {
        tenant = add(budgets, {.guaranteed = number * 10, .maximum = 400, .priority = 1 + number % 3}, give);
        for (std::uint64_t i = 0; i < 50; ++i) {
          const std::uint64_t bytes = 1 + (i * 37 + number) % 180;
          if (tenant->claim(bytes).ok()) mine += bytes;
          if (budgets->totals().used > 1000) broken = true;
          if (i % 7 == 0 && !give(100).ok()) broken = true;
        }
        tenant->retire();
        if (!give(~0ULL).ok()) broken = true;
        // A hook may still be running in another thread; it finds nothing to give.
        if (tenant->used() != 0) broken = true;
        while (tenant.use_count() > 1) std::this_thread::yield();
        tenant.reset();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  TM_CHECK(!broken && budgets->totals().used == 0 && budgets->guaranteed() == 0 && budgets->is_valid());
}
