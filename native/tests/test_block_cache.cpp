#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "pool/block_cache.hpp"
#include "tests/failing_driver.hpp"
#include "tests/host_ranges.hpp"
#include "tests/host_streams.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

using Ids = std::vector<CacheBlockId>;
constexpr std::uint64_t kBlock = 16 << 10;
constexpr std::uint64_t kSmallPage = 64 << 10;  // four blocks

BlockCacheOptions small_options() {
  BlockCacheOptions options;
  options.capacity = 64 * kSmallPage;
  options.block_bytes = kBlock;
  options.page_bytes = kSmallPage;
  options.idle_bytes = 0;
  return options;
}

std::shared_ptr<BlockCache> new_cache(const BlockCacheOptions& options = small_options(),
                                      Driver& driver = host_driver(), BudgetPtr budget = nullptr) {
  if (budget == nullptr) budget = std::make_shared<LocalBudget>(LocalBudget::kUnlimited);
  std::shared_ptr<BlockCache> cache;
  TM_CHECK(BlockCache::open(driver, options, std::move(budget), &cache).ok());
  return cache;
}

Ids allocate(BlockCache& cache, std::uint64_t count) {
  Ids ids(count);
  TM_CHECK(cache.allocate(count, kUntagged, ids.data()).ok());
  return ids;
}

Status free_all(BlockCache& cache, const Ids& ids, StreamId stream = kDefaultStream) {
  return cache.free(ids.data(), ids.size(), stream);
}

std::uint64_t address(BlockCache& cache, CacheBlockId id) {
  std::uint64_t found = 0;
  TM_CHECK(cache.addresses(&id, 1, &found).ok());
  return found;
}

char byte_of(CacheBlockId id) { return static_cast<char>(id * 37 + (id >> 28)); }

void fill(BlockCache& cache, const Ids& ids) {
  for (const CacheBlockId id : ids) std::memset(reinterpret_cast<void*>(address(cache, id)), byte_of(id), kBlock);
}

bool all_kept(BlockCache& cache, const Ids& ids) {
  return std::all_of(ids.begin(), ids.end(),
                     [&](CacheBlockId id) { return all_are(address(cache, id), kBlock, byte_of(id)); });
}

// Of each four blocks, those whose numbers are in `which`.
Ids pick(const Ids& ids, std::initializer_list<std::size_t> which) {
  Ids picked;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (std::find(which.begin(), which.end(), i % 4) != which.end()) picked.push_back(ids[i]);
  }
  return picked;
}

}  // namespace

TM_TEST("blocks lie side by side, the fullest page is filled first, and empty pages go back") {
  const auto cache = new_cache();
  const Ids ids = allocate(*cache, 12);
  TM_CHECK(address(*cache, ids[11]) == cache->base() + 11 * kBlock && cache->physical_bytes() == 3 * kSmallPage);
  TM_CHECK(free_all(*cache, {ids[0], ids[1], ids[5], ids[8], ids[9], ids[10]}).ok());
  const Ids more = allocate(*cache, 2);
  TM_CHECK(address(*cache, more[0]) == cache->base() + 5 * kBlock);
  TM_CHECK(address(*cache, more[1]) / kSmallPage == cache->base() / kSmallPage);  // page 0: two left, against three
  TM_CHECK(free_all(*cache, {ids[11]}).ok());
  TM_CHECK(cache->physical_bytes() == 2 * kSmallPage && cache->is_valid());
}

TM_TEST("a shape wastes little, with frames of several pages where one would not do") {
  using Shape = std::pair<std::uint64_t, std::uint64_t>;
  const auto shape = [](std::uint64_t block_bytes) {
    BlockCacheOptions options = small_options();
    options.block_bytes = block_bytes;
    const BlockCacheStats stats = new_cache(options)->stats();
    return Shape{stats.pages_per_frame, stats.blocks_per_frame};
  };
  TM_CHECK((shape(kBlock) == Shape{1, 4}));
  TM_CHECK((shape(100) == Shape{1, 256}));
  TM_CHECK((shape(22 << 10) == Shape{3, 8}));
  TM_CHECK((shape(kSmallPage) == Shape{1, 1}));
  TM_CHECK((shape(3 * kSmallPage) == Shape{3, 1}));
}

TM_TEST("stale, double and foreign ids are refused and nothing changes") {
  const auto cache = new_cache();
  const auto other = new_cache();
  const Ids ids = allocate(*cache, 8);
  const Ids foreign = allocate(*other, 8);
  TM_CHECK(free_all(*cache, {ids[0]}).ok());
  TM_CHECK(free_all(*cache, {ids[1], ids[0]}).code() == Code::use_after_free);
  TM_CHECK(free_all(*cache, {ids[1], ids[2], ids[1]}).code() == Code::use_after_free);
  TM_CHECK(free_all(*cache, {ids[1], foreign[1]}).code() == Code::foreign_block);
  TM_CHECK(free_all(*cache, {0}).code() == Code::foreign_block);
  TM_CHECK(free_all(*cache, {~0ULL}).code() == Code::foreign_block);
  TM_CHECK(cache->stats().live_blocks == 7 && cache->is_valid());
  const Ids again = allocate(*cache, 1);
  TM_CHECK(again[0] != ids[0] && free_all(*cache, {ids[0]}).code() == Code::use_after_free);
}

TM_TEST("a batch that does not fit is refused whole") {
  const auto cache = new_cache();
  Ids ids(300);
  TM_CHECK(cache->allocate(257, kUntagged, ids.data()).code() == Code::out_of_virtual_memory);
  TM_CHECK(cache->physical_bytes() == 0);
  TM_CHECK(cache->allocate(256, kUntagged, ids.data()).ok());
  TM_CHECK(cache->allocate(1, kUntagged, ids.data()).code() == Code::out_of_virtual_memory && cache->is_valid());
  const auto tight = new_cache(small_options(), host_driver(), std::make_shared<LocalBudget>(2 * kSmallPage));
  TM_CHECK(tight->allocate(9, kUntagged, ids.data()).code() == Code::out_of_physical_memory);
  TM_CHECK(tight->physical_bytes() == 0 && tight->allocate(8, kUntagged, ids.data()).ok() && tight->is_valid());
}

TM_TEST("compaction reaches the floor, keeps every byte, and says what moved") {
  const auto cache = new_cache();
  const Ids ids = allocate(*cache, 40);
  fill(*cache, ids);
  TM_CHECK(free_all(*cache, pick(ids, {1, 2, 3})).ok());
  const Ids left = pick(ids, {0});
  TM_CHECK(cache->stats().used_pages == 10 && cache->stats().floor_pages == 3);
  PackingReport report;
  TM_CHECK(cache->compact(~0ULL, 1e9, &report).ok());
  TM_CHECK(report.finished && report.moves.size() == 7 && report.copied_bytes == 7 * kBlock);
  TM_CHECK(report.released_pages == 7 && cache->physical_bytes() == 3 * kSmallPage);
  for (const CacheBlockMove& move : report.moves) TM_CHECK(address(*cache, move.id) == cache->address_of(move.to));
  TM_CHECK(all_kept(*cache, left) && cache->is_valid());
}

TM_TEST("compaction stops at its limit and goes on the next time") {
  const auto cache = new_cache();
  const Ids ids = allocate(*cache, 40);
  TM_CHECK(free_all(*cache, pick(ids, {1, 2, 3})).ok());
  std::uint64_t steps = 0;
  for (bool finished = false; !finished; ++steps) {
    PackingReport report;
    TM_CHECK(cache->compact(2 * kBlock, 1e9, &report).ok() && report.moves.size() <= 2);
    finished = report.finished;
  }
  TM_CHECK(steps == 4 && cache->stats().used_pages == 3 && cache->is_valid());
}

TM_TEST("pinned blocks stay, cannot be freed, and the others are packed around them") {
  const auto cache = new_cache();
  const Ids ids = allocate(*cache, 16);
  TM_CHECK(cache->pin(&ids[0], 1).ok() && cache->pin(&ids[4], 1).ok());
  const std::uint64_t before = address(*cache, ids[4]);
  TM_CHECK(free_all(*cache, {ids[4], ids[5]}).code() == Code::still_held);
  TM_CHECK(free_all(*cache, {ids[1], ids[2], ids[3], ids[5], ids[6], ids[7]}).ok());
  PackingReport report;
  TM_CHECK(cache->compact(~0ULL, 1e9, &report).ok() && report.finished);
  TM_CHECK(cache->stats().used_pages == 3 && address(*cache, ids[4]) == before && cache->is_valid());
  const Ids one_too_many{ids[0], ids[8]};
  TM_CHECK(cache->unpin(one_too_many.data(), 2).code() == Code::invalid_argument);
  TM_CHECK(cache->stats().pinned_blocks == 2);
  TM_CHECK(cache->unpin(&ids[0], 1).ok() && cache->unpin(&ids[4], 1).ok() && free_all(*cache, {ids[4]}).ok());
}

TM_TEST("blocks freed on a busy stream come back when it has passed, and used ones do not move before") {
  const auto cache = new_cache();
  const StreamId stream = new_stream();
  Gate gate;
  const Ids ids = allocate(*cache, 8);
  TM_CHECK(free_all(*cache, {ids[1], ids[2], ids[3], ids[7]}).ok());
  TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, stream).ok());
  TM_CHECK(cache->record_use(&ids[0], 1, stream).ok() && free_all(*cache, {ids[4]}, stream).ok());
  TM_CHECK(free_all(*cache, {ids[4]}).code() == Code::use_after_free);
  TM_CHECK(cache->stats().retired_blocks == 1 && cache->is_valid());
  PackingReport report;
  TM_CHECK(cache->compact(~0ULL, 1e9, &report).ok() && report.moves.empty());
  gate.let_go();
  TM_CHECK(host_driver().stream_synchronize(stream).ok() && cache->reap_pending().ok());
  TM_CHECK(cache->stats().retired_blocks == 0);
  TM_CHECK(cache->compact(~0ULL, 1e9, &report).ok() && report.moves.size() == 1 && cache->is_valid());
  TM_CHECK(host_driver().stream_destroy(stream).ok());
  TM_CHECK(free_all(*cache, {ids[0]}, stream).code() == Code::stream_misuse && cache->stats().live_blocks == 3);
}

TM_TEST("hints name the fewest blocks that empty the most pages, of the candidates if there are any") {
  const auto cache = new_cache();
  const Ids ids = allocate(*cache, 12);
  TM_CHECK(free_all(*cache, {ids[1], ids[2], ids[3], ids[4], ids[5]}).ok());  // left: 1, 2 and 4
  Ids hints;
  TM_CHECK(cache->eviction_hints(1, nullptr, 0, true, &hints).ok() && hints == Ids{ids[0]});
  hints.clear();
  TM_CHECK(cache->eviction_hints(2 * kSmallPage, nullptr, 0, true, &hints).ok());
  TM_CHECK((hints == Ids{ids[0], ids[6], ids[7]}));
  hints.clear();
  const Ids candidates{ids[0], ids[6], ids[8], ids[9], ids[10], ids[11]};
  TM_CHECK(cache->eviction_hints(~0ULL, candidates.data(), 6, false, &hints).ok());
  TM_CHECK((hints == Ids{ids[0], ids[8], ids[9], ids[10], ids[11]}) && cache->is_valid());
  TM_CHECK(cache->pin(ids.data(), 1).ok());
  hints.clear();
  TM_CHECK(cache->eviction_hints(1, nullptr, 0, true, &hints).ok() && hints.size() == 2);
  TM_CHECK(cache->unpin(ids.data(), 1).ok());
}

TM_TEST("the k-th driver call fails, for every k: nothing is half done and nothing leaks") {
  static FailingDriver driver;
  const StreamId stream = new_stream();
  for (std::uint64_t k = 1;; ++k) {
    driver.fail_at(0);
    const auto budget = std::make_shared<LocalBudget>(LocalBudget::kUnlimited);
    auto cache = new_cache(small_options(), driver, budget);
    const Ids ids = allocate(*cache, 16);
    fill(*cache, ids);
    const Ids left = pick(ids, {0});
    Gate gate;
    TM_CHECK(host_driver().launch_host(&Gate::pass, &gate, stream).ok());
    driver.fail_at(k);
    const bool used = cache->record_use(ids.data(), 4, stream).ok();
    const bool freed = free_all(*cache, pick(ids, {1, 2, 3}), stream).ok();
    TM_CHECK(cache->is_valid() && cache->stats().live_blocks == (freed ? 4U : 16U));
    gate.let_go();
    TM_CHECK(host_driver().stream_synchronize(stream).ok());
    (void)cache->reap_pending().ok();
    PackingReport report;
    (void)cache->compact(~0ULL, 1e9, &report).ok();
    TM_CHECK(cache->is_valid() && all_kept(*cache, left));
    const bool reached = driver.has_failed();
    driver.fail_at(0);
    TM_CHECK(used || reached);
    cache.reset();
    TM_CHECK(budget->used() == 0);
    if (!reached) break;
  }
  TM_CHECK(host_driver().stream_destroy(stream).ok());
}

TM_TEST("threads allocate, free, look, pin and compact at once") {
  BlockCacheOptions options = small_options();
  options.idle_bytes = 2 * kSmallPage;
  const auto cache = new_cache(options);
  std::atomic<bool> stop{false};
  std::thread packer([&] {
    while (!stop.load()) {
      PackingReport report;
      TM_CHECK(cache->compact(8 * kBlock, 1e9, &report).ok());
    }
  });
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(t + 1);
      Ids mine;
      for (int i = 0; i < 300; ++i) {
        if (mine.size() < 40 && random() % 2 == 0) {
          const Ids more = allocate(*cache, 1 + random() % 12);
          TM_CHECK(cache->pin(more.data(), more.size()).ok());
          fill(*cache, more);
          TM_CHECK(cache->unpin(more.data(), more.size()).ok());
          mine.insert(mine.end(), more.begin(), more.end());
          continue;
        }
        std::shuffle(mine.begin(), mine.end(), random);
        const Ids gone(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(mine.size() / 2));
        TM_CHECK(cache->pin(gone.data(), gone.size()).ok() && all_kept(*cache, gone));
        TM_CHECK(cache->unpin(gone.data(), gone.size()).ok() && free_all(*cache, gone).ok());
        mine.erase(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(gone.size()));
      }
      TM_CHECK(free_all(*cache, mine).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop.store(true);
  packer.join();
  TM_CHECK(cache->is_valid() && cache->stats().live_blocks == 0);
  TM_CHECK(cache->physical_bytes() <= options.idle_bytes && cache->trim(0) <= 2 && cache->physical_bytes() == 0);
}

TM_TEST("everything is given back at the end") { TM_CHECK(is_clean()); }
