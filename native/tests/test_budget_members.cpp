// Idle memory under one limit: whoever needs it gets it, from every kind of maker, with threads, and makers that end
// while they are asked.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <thread>

#include "pool/block_cache.hpp"
#include "pool/virtual_memory_pool.hpp"
#include "resource/elastic_memory_resource.hpp"
#include "tests/failing_driver.hpp"
#include "tests/host_ranges.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

constexpr std::uint64_t kPageBytes = 64 << 10;

// A maker of any kind: takes pages and frees them, whereupon they are idle.
struct Maker {
  std::function<Status(std::uint64_t pages)> take;
  std::function<void()> free;
};

Maker make_pool(Driver& driver, const BudgetPtr& budget) {
  std::shared_ptr<VirtualMemoryPool> pool;
  VirtualPoolOptions options;
  options.capacity = 64 * kPageBytes;
  options.page_bytes = kPageBytes;
  TM_CHECK(VirtualMemoryPool::open(driver, options, budget, &pool).ok());
  const auto id = std::make_shared<PoolBlockId>();
  return {[=](std::uint64_t pages) { return pool->allocate(pages * kPageBytes, 256, false, kUntagged, id.get()); },
          [=] { TM_CHECK(pool->deallocate(*id, kDefaultStream).ok()); }};
}

Maker make_cache(Driver& driver, const BudgetPtr& budget) {
  std::shared_ptr<BlockCache> cache;
  BlockCacheOptions options;
  options.block_bytes = kPageBytes;
  options.page_bytes = kPageBytes;
  options.capacity = 64 * kPageBytes;
  TM_CHECK(BlockCache::open(driver, options, budget, &cache).ok());
  const auto ids = std::make_shared<std::vector<CacheBlockId>>();
  return {[=](std::uint64_t pages) {
            ids->resize(pages);
            return cache->allocate(pages, kUntagged, ids->data());
          },
          [=] { TM_CHECK(cache->free(ids->data(), ids->size(), kDefaultStream).ok()); }};
}

Maker make_elastic(Driver& driver, const BudgetPtr& budget) {
  std::shared_ptr<ElasticMemoryResource> resource;
  TM_CHECK(ElasticMemoryResource::create(driver, 0, {.capacity = 64 * kPageBytes, .page_bytes = kPageBytes}, budget,
                                         &resource)
               .ok());
  const auto block = std::make_shared<Block>();
  return {[=](std::uint64_t pages) { return resource->allocate({.nbytes = pages * kPageBytes}, block.get()); },
          [=] {
            BlockState end{};
            TM_CHECK(resource->deallocate(*block, kDefaultStream, &end).ok());
          }};
}

using MakeMaker = Maker (*)(Driver&, const BudgetPtr&);
constexpr MakeMaker kKinds[] = {make_pool, make_cache, make_elastic};

}  // namespace

TM_TEST("what one maker keeps idle another one gets, whatever kinds they are") {
  for (const MakeMaker first : kKinds) {
    for (const MakeMaker second : kKinds) {
      FailingDriver driver;
      const auto budget = std::make_shared<LocalBudget>(8 * kPageBytes);
      const Maker keeper = first(driver, budget);
      const Maker needy = second(driver, budget);
      TM_CHECK(keeper.take(8).ok());
      TM_CHECK(!needy.take(1).ok());  // in use
      keeper.free();
      TM_CHECK(budget->used() == 8 * kPageBytes);
      TM_CHECK(needy.take(6).ok() && budget->used() == 8 * kPageBytes);  // no more than was wanted
      TM_CHECK(keeper.take(2).ok() && !keeper.take(1).ok());
      needy.free();
    }
  }
  TM_CHECK(is_clean());
}

TM_TEST("who only tries asks nobody, and does not take what a claim asked for") {
  FailingDriver driver;
  const auto budget = std::make_shared<LocalBudget>(4 * kPageBytes);
  const Maker keeper = make_pool(driver, budget);
  TM_CHECK(keeper.take(4).ok());
  keeper.free();
  TM_CHECK(!budget->try_claim(1).ok() && budget->used() == 4 * kPageBytes);
  struct Trying final : BudgetMember {
    LocalBudget& budget;
    bool got = false;
    explicit Trying(LocalBudget& of) : budget(of) {}
    std::uint64_t release_idle(std::uint64_t) noexcept override {
      got = got || budget.try_claim(1).ok();
      return 0;
    }
  } trying{*budget};
  BudgetMembership membership;
  budget->enlist(trying, &membership);
  TM_CHECK(budget->claim(4 * kPageBytes).ok() && !trying.got);
  budget->give_back(4 * kPageBytes);
}

TM_TEST("threads that together want no more than the limit are never refused") {
  constexpr std::uint64_t kLimit = 16;
  FailingDriver driver;
  const auto budget = std::make_shared<LocalBudget>(kLimit * kPageBytes);
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t wanted = 0;
  std::atomic<int> refusals{0};
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 8; ++number) {
    threads.emplace_back([&, number] {
      Maker maker = kKinds[number % 3](driver, budget);
      for (unsigned round = 0; round < 150; ++round) {
        const std::uint64_t pages = 1 + (round * 7 + number * 3) % 6;
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return wanted + pages <= kLimit; });
          wanted += pages;
        }
        if (maker.take(pages).ok()) {
          maker.free();
        } else {
          ++refusals;
        }
        {
          const std::lock_guard lock(mutex);
          wanted -= pages;
        }
        changed.notify_all();
        if (round % 25 == 24) maker = kKinds[(number + round) % 3](driver, budget);  // others may be asking it
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  TM_CHECK(refusals == 0);
  TM_CHECK(budget->used() == 0 && is_clean());
}

TM_TEST("a member that ends waits for who is asking it; a forked child has nobody who asks") {
  struct Slow final : BudgetMember {
    LocalBudget& budget;
    std::mutex mutex;
    std::condition_variable changed;
    bool asked = false;
    bool may_answer = false;
    std::uint64_t idle = 10;
    explicit Slow(LocalBudget& of) : budget(of) {}
    std::uint64_t release_idle(std::uint64_t wanted) noexcept override {
      std::unique_lock lock(mutex);
      asked = true;
      changed.notify_all();
      changed.wait(lock, [&] { return may_answer; });
      const std::uint64_t given = std::min(wanted, idle);
      idle -= given;
      budget.give_back(given);
      return given;
    }
  };
  LocalBudget budget(10);
  TM_CHECK(budget.claim(10).ok());
  Slow slow(budget);
  BudgetMembership membership;
  budget.enlist(slow, &membership);
  std::thread asking([&] { TM_CHECK(budget.claim(4).ok()); });
  {
    std::unique_lock lock(slow.mutex);
    slow.changed.wait(lock, [&] { return slow.asked; });
  }
  // A child of this moment has nobody who asks: there the end waits for nobody, and claims ask anew.
  const pid_t child = fork();
  if (child == 0) {
    slow.may_answer = true;
    const bool claimed = budget.claim(3).ok();
    membership.end();
    _exit(claimed && budget.used() == 3 ? 0 : 1);
  }
  int status = -1;
  TM_CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::atomic<bool> ended{false};
  std::thread ending([&] {
    membership.end();
    ended = true;
  });
  TM_CHECK(!ended);
  {
    const std::lock_guard lock(slow.mutex);
    slow.may_answer = true;
  }
  slow.changed.notify_all();
  ending.join();
  asking.join();
  TM_CHECK(ended && budget.used() == 4 && budget.members().empty());
}
