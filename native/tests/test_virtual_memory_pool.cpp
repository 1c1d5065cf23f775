// The elastic pool against a model of its contents: random calls, every driver call failing in turn, eight threads.
#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "pool/virtual_memory_pool.hpp"
#include "tests/failing_driver.hpp"
#include "tests/host_ranges.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

constexpr std::uint64_t kPageBytes = 64 << 10;

struct PoolCase {
  FailingDriver driver;
  std::shared_ptr<LocalBudget> budget = std::make_shared<LocalBudget>(LocalBudget::kUnlimited);
  std::shared_ptr<VirtualMemoryPool> pool;
  std::map<PoolBlockId, std::pair<std::uint64_t, unsigned char>> model;  // size and what fills it
  TagId tag = intern_tag("model");
  unsigned char next = 1;

  explicit PoolCase(std::uint64_t pages = 256) {
    VirtualPoolOptions options;
    options.capacity = pages * kPageBytes;
    options.page_bytes = kPageBytes;
    TM_CHECK(VirtualMemoryPool::open(driver, options, budget, &pool).ok());
  }
  ~PoolCase() {
    pool.reset();
    TM_CHECK(budget->used() == 0 && is_clean());
  }

  unsigned char* bytes_of(PoolBlockId id) const {
    PoolBlock block;
    TM_CHECK(pool->find(id, &block).ok());
    return reinterpret_cast<unsigned char*>(pool->base() + block.offset);
  }
  void fill(PoolBlockId id) {
    model[id].second = next++;
    std::memset(bytes_of(id), model[id].second, model[id].first);
  }
  bool add(std::uint64_t size, bool movable) {
    PoolBlockId id = 0;
    if (!pool->allocate(size, 256, movable, tag, &id).ok()) return false;
    model[id].first = size;
    fill(id);
    return true;
  }
  Status remove(PoolBlockId id) {
    Status status = pool->deallocate(id, kDefaultStream);
    if (status.ok()) model.erase(id);
    return status;
  }
  bool is_intact() const {
    for (const auto& [id, what] : model) {
      const unsigned char* const bytes = bytes_of(id);
      if (bytes[0] != what.second || std::memcmp(bytes, bytes + 1, what.first - 1) != 0) return false;
    }
    return pool->is_valid();
  }
  std::uint64_t floor_pages() const {
    std::uint64_t bytes = 0;
    for (const auto& [id, what] : model) bytes += what.first;
    return (bytes + kPageBytes - 1) / kPageBytes;
  }
  PoolBlockId any(std::mt19937_64& random) const {
    auto at = model.begin();
    std::advance(at, random() % model.size());
    return at->first;
  }
  // Where everything is, and how much of it there is.
  std::map<PoolBlockId, std::pair<std::uint64_t, std::uint64_t>> places() const {
    std::map<PoolBlockId, std::pair<std::uint64_t, std::uint64_t>> found;
    for (const auto& [id, what] : model) {
      PoolBlock block;
      TM_CHECK(pool->find(id, &block).ok());
      found[id] = {block.offset, block.size};
    }
    return found;
  }
  void finish_compaction() {
    CompactionReport report;
    TM_CHECK(pool->compact({}, &report).ok() && report.finished);
  }
};

std::uint64_t mixed_size(std::mt19937_64& random) { return 1 + random() % (1ULL << (8 + random() % 11)); }

}  // namespace

TM_TEST("random calls keep every byte and every book") {
  std::mt19937_64 random(3);
  PoolCase test;
  for (int step = 0; step < 1500; ++step) {
    const std::uint64_t kind = random() % 10;
    if (kind < 4 || test.model.empty()) {
      (void)test.add(mixed_size(random), random() % 4 != 0);
    } else if (kind < 7) {
      TM_CHECK(test.remove(test.any(random)).ok());
    } else if (kind == 7) {
      const PoolBlockId id = test.any(random);
      const std::uint64_t size = mixed_size(random);
      const std::uint64_t kept = std::min(size, test.model[id].first);
      if (!test.pool->resize(id, size).ok()) continue;
      test.model[id].first = kept;
      TM_CHECK(test.is_intact());
      test.model[id].first = size;
      test.fill(id);
    } else if (kind == 8) {
      CompactionReport report;
      TM_CHECK(test.pool->compact({.max_bytes = random() % (1 << 20), .max_seconds = 1e30}, &report).ok());
    } else {
      (void)test.pool->cache().trim(random() % 8);
    }
    TM_CHECK(test.is_intact());
  }
}

TM_TEST("after a churn of mixed sizes compaction comes near the packed floor") {
  struct Mix {
    const char* name;
    std::function<std::uint64_t(std::mt19937_64&)> size;
  };
  const Mix mixes[] = {
      {"log-uniform to four pages", [](auto& random) { return 1 + random() % (1ULL << (8 + random() % 11)); }},
      {"small", [](auto& random) { return 1 + random() % (kPageBytes / 2); }},
      {"about half a page and more", [](auto& random) { return kPageBytes / 2 + random() % (kPageBytes / 4); }},
      {"one to eight pages", [](auto& random) { return kPageBytes + random() % (7 * kPageBytes); }},
      {"all a page and a bit", [](auto&) { return kPageBytes + kPageBytes / 8; }},
  };
  for (const Mix& mix : mixes) {
    std::mt19937_64 random(17);
    PoolCase test(4096);
    for (int step = 0; step < 4000; ++step) {
      if (test.model.size() < 400 && random() % 2 == 0) {
        TM_CHECK(test.add(mix.size(random), true));
      } else if (!test.model.empty()) {
        TM_CHECK(test.remove(test.any(random)).ok());
      }
    }
    while (test.model.size() < 300) TM_CHECK(test.add(mix.size(random), true));
    while (test.model.size() > 100) TM_CHECK(test.remove(test.any(random)).ok());
    const std::uint64_t before = test.pool->stats().mapped_pages;
    test.finish_compaction();
    TM_CHECK(test.is_intact());
    const std::uint64_t after = test.pool->stats().mapped_pages;
    const std::uint64_t floor = test.floor_pages();
    if (after * 100 > floor * 105 + 100) {
      std::fprintf(stderr, "  %s: %lu pages before, %lu after, floor %lu\n", mix.name, before, after, floor);
    }
    TM_CHECK(after * 100 <= floor * 105 + 100);  // a page more on a pool of a few
  }
}

TM_TEST("a byte budget stops a compaction, and the next call goes on to the same end") {
  std::mt19937_64 random(5);
  PoolCase test(1024);
  for (int i = 0; i < 300; ++i) TM_CHECK(test.add(1 + random() % kPageBytes, true));
  for (int i = 0; i < 200; ++i) TM_CHECK(test.remove(test.any(random)).ok());
  int calls = 0;
  bool finished = false;
  while (!finished && ++calls < 10000) {
    CompactionReport report;
    const CompactionLimits limits{.max_bytes = 3 * kPageBytes, .max_seconds = 1e30};
    TM_CHECK(test.pool->compact(limits, &report).ok());
    TM_CHECK(report.copied_bytes + report.remapped_pages * kPageBytes <= limits.max_bytes + kPageBytes);
    finished = report.finished || report.moves.empty();
    TM_CHECK(test.is_intact());
  }
  if (calls < 2 || calls >= 10000) std::fprintf(stderr, "  %d calls\n", calls);
  TM_CHECK(calls > 1 && calls < 10000);
  CompactionReport report;
  TM_CHECK(test.pool->compact({.max_bytes = ~0ULL, .max_seconds = 0}, &report).ok() && report.moves.empty());
}

// --- The k-th call of the driver fails -----------------------------------------------------------------------------

namespace {

// `operation` fails for every k, and changes nothing; then it works.
void fails_whole(PoolCase& test, const char* name, const std::function<Status()>& operation) {
  for (std::uint64_t nth = 1; nth < 1000; ++nth) {
    const auto before = test.places();
    const VirtualPoolStats stats = test.pool->stats();
    test.driver.fail_at(nth);
    const bool done = operation().ok();
    const bool has_failed = test.driver.has_failed();
    test.driver.fail_at(0);
    if (!has_failed || done) {
      TM_CHECK(done && test.pool->is_valid());
      return;
    }
    const VirtualPoolStats now = test.pool->stats();
    const bool is_same = test.places() == before && now.mapped_pages == stats.mapped_pages &&
                         now.live_bytes == stats.live_bytes && now.suspended_bytes == stats.suspended_bytes &&
                         now.total_free == stats.total_free && now.retired_bytes == stats.retired_bytes;
    if (!is_same) std::fprintf(stderr, "  %s, call %lu\n", name, nth);
    TM_CHECK(is_same && test.pool->is_valid());
  }
}

}  // namespace

TM_TEST("whichever driver call of an operation fails, everything is as before") {
  PoolCase test;
  test.driver.include_virtual_memory();
  std::mt19937_64 random(23);
  for (int i = 0; i < 40; ++i) TM_CHECK(test.add(mixed_size(random), i % 3 != 0));
  TM_CHECK(test.add(5 * kPageBytes + 100, true) && test.add(100, false));
  for (int i = 0; i < 12; ++i) TM_CHECK(test.remove(test.any(random)).ok());
  (void)test.pool->cache().trim(0);

  PoolBlockId made = 0;
  fails_whole(test, "allocate", [&] { return test.pool->allocate(3 * kPageBytes + 9, 256, true, test.tag, &made); });
  TM_CHECK(test.pool->resize(made, 9 * kPageBytes).ok());
  fails_whole(test, "grow", [&] { return test.pool->resize(made, 40 * kPageBytes); });
  fails_whole(test, "shrink", [&] { return test.pool->resize(made, 2 * kPageBytes + 1); });
  PoolBlockId wall = 0;
  TM_CHECK(test.pool->allocate(kPageBytes, 256, false, test.tag, &wall).ok());
  fails_whole(test, "deallocate", [&] { return test.pool->deallocate(made, kDefaultStream); });
  const std::uint64_t far = 200 * kPageBytes;
  fails_whole(test, "allocate_at", [&] { return test.pool->allocate_at(far, 4 * kPageBytes, test.tag); });
  fails_whole(test, "deallocate_at",
              [&] { return test.pool->deallocate_at(far + kPageBytes, 2 * kPageBytes, kDefaultStream); });
  TM_CHECK(test.is_intact());

  std::vector<PoolBlock> held;
  TM_CHECK(test.pool->hold_tagged(test.tag, &held).ok());
  std::vector<PoolBlockId> ids;
  for (const PoolBlock& block : held) ids.push_back(block.id);
  fails_whole(test, "suspend", [&] {
    Status status = test.pool->suspend(ids, 1);
    if (!status.ok()) TM_CHECK(test.is_intact());
    return status;
  });
  TM_CHECK(test.pool->stats().mapped_pages == 0 && test.pool->has_suspended(1) && !test.pool->has_suspended(2));
  fails_whole(test, "resume", [&] { return test.pool->resume(ids); });
  for (const PoolBlockId id : ids) TM_CHECK(test.pool->let_go(id).ok());
  for (const auto& [id, what] : test.model) test.fill(id);
  TM_CHECK(test.is_intact());
}

TM_TEST("whichever driver call of a compaction fails, all contents are whole and it can go on") {
  for (std::uint64_t nth = 1; nth < 2000; nth += nth < 40 ? 1 : 7) {
    std::mt19937_64 random(29);
    PoolCase test;
    test.driver.include_virtual_memory();
    for (int i = 0; i < 60; ++i) TM_CHECK(test.add(mixed_size(random), i % 5 != 0));
    for (int i = 0; i < 35; ++i) TM_CHECK(test.remove(test.any(random)).ok());
    test.driver.fail_at(nth);
    CompactionReport report;
    const bool done = test.pool->compact({}, &report).ok();
    const bool has_failed = test.driver.has_failed();
    test.driver.fail_at(0);
    TM_CHECK(test.is_intact());
    test.finish_compaction();
    TM_CHECK(test.is_intact());
    if (!has_failed && done) return;
  }
  TM_CHECK(!"a compaction makes fewer calls");
}

TM_TEST("a growing block that moved and cannot grow goes back") {
  PoolCase test;
  test.driver.include_virtual_memory();
  TM_CHECK(test.add(2 * kPageBytes + 77, true));
  const PoolBlockId id = test.model.begin()->first;
  TM_CHECK(test.add(kPageBytes, false) && test.add(300, false));
  bool moved = false;
  for (std::uint64_t nth = 1; !moved && nth < 100; ++nth) {
    const auto before = test.places();
    test.driver.fail_at(nth);
    moved = test.pool->resize(id, 6 * kPageBytes).ok();
    test.driver.fail_at(0);
    if (!moved) TM_CHECK(test.places() == before);
    TM_CHECK(test.is_intact());
  }
  TM_CHECK(moved);
}

// --- Threads -------------------------------------------------------------------------------------------------------

TM_TEST("eight threads allocate, resize, compact, suspend and free") {
  PoolCase test(2048);
  std::vector<std::thread> threads;
  std::atomic<int> lost{0};
  for (unsigned seed = 0; seed < 8; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      VirtualMemoryPool& pool = *test.pool;
      const TagId tag = intern_tag(seed % 2 == 0 ? "even" : "odd");
      std::vector<PoolBlockId> mine;
      for (int step = 0; step < 400; ++step) {
        const std::uint64_t kind = random() % 8;
        if (kind < 3 || mine.empty()) {
          PoolBlockId id = 0;
          if (pool.allocate(1 + random() % (3 * kPageBytes), 256, random() % 2 == 0, tag, &id).ok()) mine.push_back(id);
        } else if (kind < 5) {
          pool.drop(mine.back());
          mine.pop_back();
        } else if (kind == 5) {
          (void)pool.resize(mine.back(), 1 + random() % (3 * kPageBytes)).ok();
        } else if (kind == 6) {
          CompactionReport report;
          if (!pool.compact({.max_bytes = 4 * kPageBytes, .max_seconds = 1e30}, &report).ok()) ++lost;
        } else {
          std::vector<PoolBlock> held;
          if (!pool.hold_tagged(tag, &held).ok()) continue;
          std::vector<PoolBlockId> ids;
          for (const PoolBlock& block : held) ids.push_back(block.id);
          if (pool.suspend(ids, 1).ok()) {
            held.clear();
            if (!pool.list_suspended(tag, &held).ok()) continue;
            ids.clear();
            for (const PoolBlock& block : held) ids.push_back(block.id);
            if (!pool.resume(ids).ok()) continue;
          }
          for (const PoolBlockId id : ids) (void)pool.let_go(id).ok();
        }
      }
      for (const PoolBlockId id : mine) pool.drop(id);
    });
  }
  for (std::thread& thread : threads) thread.join();
  TM_CHECK(lost == 0 && test.pool->is_valid());
}
