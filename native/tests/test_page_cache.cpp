// Pages without an address: homes, waters, the thread that makes them ahead, and failures.
#include <thread>

#include "pool/page_cache.hpp"
#include "tests/failing_driver.hpp"
#include "tests/host_ranges.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

constexpr std::uint64_t kPageBytes = 64 << 10;

struct CacheCase {
  FailingDriver driver;
  std::shared_ptr<LocalBudget> budget = std::make_shared<LocalBudget>(LocalBudget::kUnlimited);
  std::uint64_t base = new_range(64 * kPageBytes);
  std::unique_ptr<PageCache> cache;

  explicit CacheCase(const PageCacheOptions& options = {}) { open(options); }
  ~CacheCase() {
    cache.reset();
    TM_CHECK(budget->used() == 0);
    TM_CHECK(driver.release(base, 64 * kPageBytes).ok() && is_clean());
  }
  void open(const PageCacheOptions& options) {
    cache = std::make_unique<PageCache>(driver, 0, base, kPageBytes, 64, options, budget);
  }
};

}  // namespace

TM_TEST("a page comes back to its home, and others serve when it is away") {
  CacheCase test;
  std::vector<Page> pages;
  TM_CHECK(test.cache->take({5, 9}, &pages).ok());
  TM_CHECK(pages[0].home == 5 && pages[1].home == 9);
  test.cache->put_back(pages);
  std::vector<Page> again;
  TM_CHECK(test.cache->take({9, 20}, &again).ok());
  TM_CHECK(again[0].home == 9 && again[0].physical == pages[1].physical);
  TM_CHECK(again[1].home == 5 && test.cache->created_pages() == 2 && test.cache->recycled_pages() == 2);
  test.cache->put_back(again);
}

TM_TEST("above the high water pages go back, and all of them while the budget is exceeded") {
  CacheCase test({.low_pages = 0, .high_pages = 2, .background = false});
  std::vector<Page> pages;
  TM_CHECK(test.cache->take({0, 1, 2, 3}, &pages).ok() && test.budget->used() == 4 * kPageBytes);
  test.cache->put_back(pages);
  TM_CHECK(test.cache->cached_pages() == 2 && test.cache->held_pages() == 2 && test.budget->used() == 2 * kPageBytes);
  TM_CHECK(test.cache->take({0, 1}, &pages).ok());
  test.budget->set_limit(kPageBytes);
  test.cache->put_back(pages);
  TM_CHECK(test.cache->cached_pages() == 0 && test.budget->used() == 0);
}

TM_TEST("a refused budget says what the caller asked for and could have had") {
  CacheCase test;
  std::vector<Page> pages;
  TM_CHECK(test.cache->take({0, 1}, &pages).ok());
  test.cache->put_back(pages);
  test.budget->set_limit(3 * kPageBytes);
  Status status = test.cache->take({0, 1, 2, 3}, &pages);
  TM_CHECK(status.code() == Code::out_of_physical_memory);
  TM_CHECK(status.failure().facts[0] == 4 * kPageBytes && status.failure().facts[1] == 3 * kPageBytes);
  TM_CHECK(test.cache->cached_pages() == 2 && test.budget->used() == 2 * kPageBytes);
}

TM_TEST("whichever page cannot be made, what was there stays and nothing else does") {
  CacheCase test;
  test.driver.include_virtual_memory();
  std::vector<Page> pages;
  TM_CHECK(test.cache->take({7}, &pages).ok());
  test.cache->put_back(pages);
  for (std::uint64_t nth = 1; nth <= 5; ++nth) {
    test.driver.fail_at(nth);
    std::vector<Page> taken;
    TM_CHECK(!test.cache->take({4, 5, 6, 7, 8, 9}, &taken).ok() && taken.empty());
    test.driver.fail_at(0);
    TM_CHECK(test.cache->held_pages() == 1 && test.cache->cached_pages() == 1 && test.budget->used() == kPageBytes);
  }
}

TM_TEST("pages are made ahead up to the low water, and not beyond the budget") {
  CacheCase test({.low_pages = 8, .high_pages = 16, .background = false});
  TM_CHECK(test.cache->step_ahead(3) == 3 && test.cache->cached_pages() == 3);
  test.budget->set_limit(5 * kPageBytes);
  TM_CHECK(test.cache->step_ahead(100) == 2 && test.cache->step_ahead(100) == 0);
  test.budget->set_limit(LocalBudget::kUnlimited);
  TM_CHECK(test.cache->step_ahead(100) == 3 && test.cache->cached_pages() == 8);
  test.cache->set_water(0, 1);
  TM_CHECK(test.cache->cached_pages() == 1);
}

TM_TEST("a thread keeps the low water and ends with the cache") {
  CacheCase test({.low_pages = 4, .high_pages = 8, .background = true});
  while (test.cache->cached_pages() < 4) std::this_thread::yield();
  std::vector<Page> pages;
  TM_CHECK(test.cache->take({0, 1, 2}, &pages).ok());
  while (test.cache->cached_pages() < 4) std::this_thread::yield();
  test.cache->put_back(pages);
}

TM_TEST("a child of a fork can end a cache whose thread is the parent's") {
  CacheCase test({.low_pages = 2, .high_pages = 8, .background = true});
  while (test.cache->cached_pages() < 2) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    test.cache.reset();
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  TM_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  TM_CHECK(test.cache->cached_pages() == 2);
}
