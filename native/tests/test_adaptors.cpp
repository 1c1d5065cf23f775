#include <cstring>
#include <set>
#include <vector>

#include "resource/aligned_resource_adaptor.hpp"
#include "resource/debug_guard_resource_adaptor.hpp"
#include "resource/failure_callback_resource_adaptor.hpp"
#include "resource/fault_injection_resource_adaptor.hpp"
#include "resource/foreign_resource_adaptor.hpp"
#include "resource/limiting_resource_adaptor.hpp"
#include "resource/logging_resource_adaptor.hpp"
#include "resource/memory_log_sink.hpp"
#include "resource/prefetch_resource_adaptor.hpp"
#include "resource/pressure_resource_adaptor.hpp"
#include "resource/statistics_resource_adaptor.hpp"
#include "resource/tracking_resource_adaptor.hpp"
#include "tests/failing_driver.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

using Calls = std::set<int>;

// Which of the calls 1..count a plan makes fail.
Calls failing_calls(const FaultInjectionPlan& plan, int count, std::uint64_t nbytes = 100, TagId tag = kUntagged) {
  auto leaf = make_leaf();
  FaultInjectionResourceAdaptor faulty(leaf, plan);
  Calls failed;
  for (int call = 1; call <= count; ++call) {
    Block block{};
    const Status taken = faulty.allocate({.nbytes = nbytes, .tag = tag}, &block);
    if (taken.ok()) {
      TM_CHECK(deallocate(faulty, block).ok());
    } else {
      TM_CHECK(taken.code() == Code::out_of_memory && taken.failure().facts[0] == nbytes);
      failed.insert(call);
    }
  }
  TM_CHECK(faulty.injected_faults() == failed.size());
  TM_CHECK(leaf->stats().total_count == static_cast<std::uint64_t>(count) - failed.size());
  return failed;
}

bool is_scope(const ScopeCounters& scope, std::int64_t current, std::int64_t peak, std::int64_t total) {
  return scope.current_bytes == current && scope.peak_bytes == peak && scope.total_bytes == total;
}

}  // namespace

TM_TEST("statistics count what passes, and a failure is not counted") {
  StatisticsResourceAdaptor counted(
      std::make_shared<FaultInjectionResourceAdaptor>(make_leaf(), FaultInjectionPlan{.nth = 3}));
  const Block one = allocate(counted, 100);
  const Block two = allocate(counted, 50);
  TM_CHECK(try_allocate(counted, 1000) == Code::out_of_memory);
  TM_CHECK(deallocate(counted, one).ok());
  TM_CHECK(deallocate(counted, one).code() == Code::use_after_free);
  const ScopeCounters now = counted.counters();
  TM_CHECK(is_scope(now, 50, 150, 150));
  TM_CHECK(now.current_count == 1 && now.peak_count == 2 && now.total_count == 2);
  TM_CHECK(deallocate(counted, two).ok());
}

TM_TEST("a pushed scope counts afresh, and popping gives the outer one what it saw") {
  StatisticsResourceAdaptor counted(make_leaf());
  const Block one = allocate(counted, 100);
  TM_CHECK(is_scope(counted.push(), 100, 100, 100));
  const Block two = allocate(counted, 30);
  TM_CHECK(deallocate(counted, two).ok());
  TM_CHECK(deallocate(counted, one).ok());
  ScopeCounters ended;
  TM_CHECK(counted.pop(&ended).ok());
  TM_CHECK(is_scope(ended, -100, 30, 30));  // it saw more freed than allocated
  TM_CHECK(is_scope(counted.counters(), 0, 130, 130));
  TM_CHECK(counted.pop(&ended).code() == Code::invalid_argument);
  TM_CHECK(is_scope(counted.counters(), 0, 130, 130));
}

TM_TEST("blocks from the threshold on get the larger alignment") {
  AlignedResourceAdaptor aligned(make_leaf(), 4096, 1000);
  Block small{};
  Block large{};
  Block larger{};
  TM_CHECK(aligned.allocate({.nbytes = 999, .alignment = 16}, &small).ok());
  TM_CHECK(aligned.allocate({.nbytes = 1000, .alignment = 16}, &large).ok());
  TM_CHECK(aligned.allocate({.nbytes = 1000, .alignment = 8192}, &larger).ok());
  TM_CHECK(small.alignment_log2 == 4);
  TM_CHECK(large.alignment_log2 == 12 && large.address % 4096 == 0);
  TM_CHECK(larger.alignment_log2 == 13 && larger.address % 8192 == 0);
  Block refused{};
  TM_CHECK(aligned.allocate({.nbytes = 1000, .alignment = 3}, &refused).code() == Code::invalid_alignment);
  for (const Block& block : {small, large, larger}) TM_CHECK(deallocate(aligned, block).ok());
}

TM_TEST("prefetched blocks are usable, and a failed prefetch gives the block back") {
  FailingDriver driver;
  auto leaf = make_leaf(driver);
  PrefetchResourceAdaptor prefetching(leaf, -1);
  const Block block = allocate(prefetching, 1 << 20);
  std::memset(bytes_of(block), 1, block.nbytes);
  TM_CHECK(deallocate(prefetching, block).ok());
  driver.fail_at(2);  // the first is the allocation
  TM_CHECK(try_allocate(prefetching, 1 << 20) == Code::driver_error);
  TM_CHECK(driver.has_failed() && leaf->bytes_outstanding() == 0 && leaf->stats().total_count == 2);
}

TM_TEST("faults come at the n-th call, at every n-th, by size and by tag") {
  TM_CHECK((failing_calls({.nth = 3}, 10) == Calls{3}));
  TM_CHECK((failing_calls({.every = 4}, 10) == Calls{4, 8}));
  TM_CHECK((failing_calls({.min_bytes = 101}, 3) == Calls{}));
  TM_CHECK((failing_calls({.min_bytes = 100, .max_bytes = 100}, 3) == Calls{1, 2, 3}));
  TM_CHECK((failing_calls({.max_bytes = 99}, 3) == Calls{}));
  const TagId tag = intern_tag("faulty");
  TM_CHECK((failing_calls({.nth = 2, .only_tag = true, .tag = tag}, 3, 100, tag) == Calls{2}));
  TM_CHECK((failing_calls({.only_tag = true, .tag = tag}, 3) == Calls{}));
}

TM_TEST("faults by probability are the same for the same seed and others for another") {
  const Calls first = failing_calls({.probability = 0.25, .seed = 7}, 1000);
  TM_CHECK(first == failing_calls({.probability = 0.25, .seed = 7}, 1000));
  TM_CHECK(first != failing_calls({.probability = 0.25, .seed = 8}, 1000));
  TM_CHECK(first.size() > 180 && first.size() < 320);
  TM_CHECK(failing_calls({.probability = 0.0}, 100).empty());
}

TM_TEST("the failure callback is asked until it gives up, and only about shortage") {
  auto leaf = make_leaf();
  auto limited = std::make_shared<LimitingResourceAdaptor>(leaf, 1000);
  std::vector<Block> cache;
  for (int i = 0; i < 4; ++i) cache.push_back(allocate(*limited, 250));
  std::vector<std::uint64_t> asked;
  FailureCallbackResourceAdaptor retrying(limited, [&](std::uint64_t nbytes, bool* again) {
    asked.push_back(nbytes);
    if (cache.empty()) return Status();
    *again = true;
    Status freed = deallocate(*limited, cache.back());
    cache.pop_back();
    return freed;
  });
  const Block block = allocate(retrying, 700);
  TM_CHECK((asked == std::vector<std::uint64_t>(3, 700)) && cache.size() == 1);
  TM_CHECK(try_allocate(retrying, 900) == Code::out_of_budget);
  TM_CHECK(asked.size() == 5 && cache.empty());
  TM_CHECK(try_allocate(retrying, 0) == Code::invalid_size);
  TM_CHECK(asked.size() == 5);
  TM_CHECK(deallocate(retrying, block).ok());
  TM_CHECK(limited->charged() == 0);
}

TM_TEST("a failure callback that fails ends the allocation with its own failure") {
  FailureCallbackResourceAdaptor retrying(std::make_shared<LimitingResourceAdaptor>(make_leaf(), 10),
                                          [](std::uint64_t, bool* again) {
                                            *again = true;
                                            return Status::fail(Code::invalid_argument, "the callback raised");
                                          });
  TM_CHECK(try_allocate(retrying, 11) == Code::invalid_argument);
}

TM_TEST("a foreign adaptor's hooks are called, and what it does not override is forwarded") {
  auto leaf = make_leaf();
  int calls = 0;
  ForeignResourceAdaptor forwarding(leaf, {});
  ForeignResourceAdaptor hooked(leaf, {.allocate =
                                           [&](const AllocRequest& request, Block* block) {
                                             ++calls;
                                             if (request.nbytes > 100)
                                               return Status::fail(Code::invalid_argument, "the hook refuses");
                                             return leaf->allocate(request, block);
                                           },
                                       .deallocate =
                                           [&](const Block& block, StreamId stream) {
                                             ++calls;
                                             return deallocate(*leaf, block, stream);
                                           },
                                       .reap_pending =
                                           [&] {
                                             ++calls;
                                             return leaf->reap_pending();
                                           }});
  for (ForeignResourceAdaptor* each : {&forwarding, &hooked}) {
    const Block block = allocate(*each, 100);
    TM_CHECK(each->state_of(block) == BlockState::live && each->bytes_outstanding() == 100);
    BlockState end{};
    TM_CHECK(each->deallocate(block, kDefaultStream, &end).ok() && end == BlockState::freed);
    TM_CHECK(each->deallocate(block, kDefaultStream, &end).code() == Code::use_after_free);
    TM_CHECK(each->reap_pending().ok());
  }
  TM_CHECK(calls == 4);
  TM_CHECK(try_allocate(hooked, 101) == Code::invalid_argument);
  TM_CHECK(leaf->bytes_outstanding() == 0);
}

namespace {

// Every adaptor that counts, over a source that fails.
struct Stack {
  explicit Stack(const ResourcePtr& source)
      : below(std::make_shared<StatisticsResourceAdaptor>(source)),
        guard(std::make_shared<DebugGuardResourceAdaptor>(
            below, DebugGuardOptions{.host_accessible = true, .quarantine_bytes = 2000})),
        limited(std::make_shared<LimitingResourceAdaptor>(guard, 5000)),
        pressure(std::make_shared<PressureResourceAdaptor>(
            limited, PressureMarks{.warn = 2000, .critical = 1 << 20, .hysteresis = 100},
            [](PressureLevel, std::uint64_t) { return Status(); })),
        counted(std::make_shared<StatisticsResourceAdaptor>(pressure)),
        sink(std::make_shared<MemoryLogSink>()),
        logged(std::make_shared<LoggingResourceAdaptor>(counted, sink)),
        top(std::make_shared<TrackingResourceAdaptor>(logged)) {}

  // All of them agree that so much is out.
  void check_outstanding(std::uint64_t nbytes) const {
    TM_CHECK(guard->bytes_outstanding() == nbytes && guard->stats().current_bytes == nbytes && guard->is_valid());
    TM_CHECK(limited->bytes_outstanding() == nbytes && pressure->bytes_outstanding() == nbytes);
    TM_CHECK(counted->counters().current_bytes == static_cast<std::int64_t>(nbytes));
    TM_CHECK(top->outstanding_bytes() == nbytes && top->bytes_outstanding() == nbytes && top->is_valid());
  }

  std::shared_ptr<StatisticsResourceAdaptor> below;
  std::shared_ptr<DebugGuardResourceAdaptor> guard;
  std::shared_ptr<LimitingResourceAdaptor> limited;
  std::shared_ptr<PressureResourceAdaptor> pressure;
  std::shared_ptr<StatisticsResourceAdaptor> counted;
  std::shared_ptr<MemoryLogSink> sink;
  std::shared_ptr<LoggingResourceAdaptor> logged;
  std::shared_ptr<TrackingResourceAdaptor> top;
};

// Allocations and frees over one stack; how many allocations failed.
std::uint64_t run_scenario(Stack& stack, const std::vector<StreamId>& streams) {
  std::vector<Block> held;
  std::uint64_t out = 0;
  std::uint64_t failed = 0;
  for (std::uint64_t step = 0; step < 20; ++step) {
    Block block{};
    const std::uint64_t nbytes = 1 + step * 97 % 700;
    if (stack.top->allocate({.nbytes = nbytes, .stream = streams[step % streams.size()]}, &block).ok()) {
      held.push_back(block);
      out += nbytes;
    } else {
      ++failed;
    }
    stack.check_outstanding(out);
    if (held.size() < 4) continue;
    out -= held.front().nbytes;
    TM_CHECK(deallocate(*stack.top, held.front()).ok());
    held.erase(held.begin());
    stack.check_outstanding(out);
  }
  for (const Block& block : held) TM_CHECK(deallocate(*stack.top, block).ok());
  stack.check_outstanding(0);
  return failed;
}

}  // namespace

TM_TEST("for every k, the k-th allocation of the upstream fails and every counter still adds up") {
  std::uint64_t calls = 1;
  for (std::uint64_t k = 1; k <= calls; ++k) {
    auto leaf = make_leaf();
    auto faulty = std::make_shared<FaultInjectionResourceAdaptor>(leaf, FaultInjectionPlan{.nth = k});
    Stack stack(faulty);
    // One failure is mended: the guard tries again after it gave its quarantine up.
    TM_CHECK(run_scenario(stack, {kDefaultStream}) == 0);
    TM_CHECK(faulty->injected_faults() == 1);
    calls = faulty->matching_calls() - 1;
    TM_CHECK(stack.guard->flush_quarantine().ok());
    TM_CHECK(leaf->bytes_outstanding() == 0 && stack.below->counters().current_count == 0 && leaf->is_valid());
    TM_CHECK(stack.sink->size() == 40 && stack.logged->dropped_records() == 0);
  }
  TM_CHECK(calls == 20);
}

TM_TEST("half of the allocations of the upstream fail and every counter still adds up") {
  std::uint64_t failed_in_all = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    auto leaf = make_leaf();
    auto faulty =
        std::make_shared<FaultInjectionResourceAdaptor>(leaf, FaultInjectionPlan{.probability = 0.5, .seed = seed});
    Stack stack(faulty);
    const std::uint64_t failed = run_scenario(stack, {kDefaultStream});
    std::uint64_t refused = 0;
    for (const LogRecord& record : stack.sink->snapshot()) refused += record.code == Code::out_of_memory ? 1 : 0;
    TM_CHECK(refused == failed && stack.sink->size() == 40 - failed);
    TM_CHECK(stack.guard->flush_quarantine().ok() && leaf->bytes_outstanding() == 0);
    failed_in_all += failed;
  }
  TM_CHECK(failed_in_all > 30);
}
