// Growth in single flight: an upstream that is slow, refuses, or comes back, and many threads that miss at once.
#include <condition_variable>
#include <functional>
#include <random>

#include "resource/pool_memory_resource.hpp"
#include "resource/resource_adaptor.hpp"
#include "tests/resource_case.hpp"

using namespace tensormem;
using namespace tensormem::test;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// Its calls are counted, and each waits until `may_go` says so.
class SlowUpstream final : public ResourceAdaptor {
 public:
  explicit SlowUpstream(std::function<bool(int)> may_go = nullptr, std::uint64_t largest = ~0ULL)
      : ResourceAdaptor(make_leaf()), may_go_(std::move(may_go)), largest_(largest) {}

  Status do_allocate(const AllocRequest& request, Block* block) override {
    {
      std::unique_lock lock(mutex_);
      const int call = ++calls_;
      ++running_;
      most_running_ = std::max(most_running_, running_);
      if (may_go_) {
        while (!may_go_(call)) changed_.wait_for(lock, std::chrono::milliseconds(1));
      }
      --running_;
    }
    if (request.nbytes > largest_)
      return Status::fail(Code::out_of_memory, "too large for this test", request.nbytes, largest_, largest_);
    return ResourceAdaptor::do_allocate(request, block);
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  int most_running() {
    const std::lock_guard lock(mutex_);
    return most_running_;
  }

 private:
  const std::function<bool(int)> may_go_;
  const std::uint64_t largest_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  int running_ = 0;
  int most_running_ = 0;
};

using PoolPtr = std::shared_ptr<PoolMemoryResource>;

PoolPtr make_pool(const ResourcePtr& upstream, const PoolOptions& options = {}) {
  PoolPtr pool;
  TM_CHECK(PoolMemoryResource::create(upstream, options, &pool).ok());
  return pool;
}

std::uint64_t size_of(unsigned thread, unsigned round) { return (1 + (thread * 7 + round * 5) % 13) * kMiB / 2; }

// What one thread may reserve for all of it: that depends on the order, so the most of several.
std::uint64_t reserved_alone(unsigned threads, unsigned rounds) {
  std::vector<std::uint64_t> sizes;
  for (unsigned round = 0; round < rounds; ++round) {
    for (unsigned thread = 0; thread < threads; ++thread) sizes.push_back(size_of(thread, round));
  }
  std::mt19937 random(7);
  std::uint64_t most = 0;
  for (int order = 0; order < 16; ++order) {
    const PoolPtr pool = make_pool(make_leaf());
    std::vector<Block> blocks;
    for (const std::uint64_t size : sizes) blocks.push_back(allocate(*pool, size));
    most = std::max(most, pool->usage().reserved_bytes);
    for (const Block& block : blocks) TM_CHECK(deallocate(*pool, block).ok());
    std::shuffle(sizes.begin(), sizes.end(), random);
  }
  return most;
}

}  // namespace

TM_TEST("threads that miss at once share one growth: two calls serve all of them") {
  for (const unsigned threads : {2U, 16U, 64U}) {
    PoolPtr pool;
    // The first call ends when everybody else waits for it.
    const auto upstream =
        std::make_shared<SlowUpstream>([&](int call) { return call != 1 || pool->waiting_count() == threads - 1; });
    pool = make_pool(upstream);
    std::vector<Block> blocks(threads);
    std::vector<std::thread> running;
    for (unsigned each = 0; each < threads; ++each) {
      running.emplace_back([&, each] { blocks[each] = allocate(*pool, size_of(each, 0)); });
    }
    for (std::thread& thread : running) thread.join();
    TM_CHECK(upstream->calls() <= 2 && upstream->most_running() == 1);
    TM_CHECK(4 * pool->usage().reserved_bytes <= 5 * reserved_alone(threads, 1));
    TM_CHECK(pool->is_valid() && pool->waiting_count() == 0);
    for (const Block& block : blocks) TM_CHECK(deallocate(*pool, block).ok());
  }
}

TM_TEST("whatever the number of threads, a slow upstream is asked for no more than one thread would have asked for") {
  constexpr unsigned kRounds = 6;
  for (const unsigned threads : {1U, 2U, 4U, 16U, 64U}) {
    std::atomic<unsigned> looks{0};
    // Every call takes a few looks, so that others miss meanwhile.
    const auto upstream = std::make_shared<SlowUpstream>([&](int) { return ++looks % 3 == 0; });
    const PoolPtr pool = make_pool(upstream);
    std::vector<std::vector<Block>> blocks(threads);
    std::vector<std::thread> running;
    for (unsigned each = 0; each < threads; ++each) {
      running.emplace_back([&, each] {
        for (unsigned round = 0; round < kRounds; ++round)
          blocks[each].push_back(allocate(*pool, size_of(each, round)));
      });
    }
    for (std::thread& thread : running) thread.join();
    TM_CHECK(4 * pool->usage().reserved_bytes <= 5 * reserved_alone(threads, kRounds));
    TM_CHECK(upstream->most_running() == 1 && pool->is_valid());
    for (const auto& list : blocks) {
      for (const Block& block : list) TM_CHECK(deallocate(*pool, block).ok());
    }
    std::uint64_t released = 0;
    TM_CHECK(pool->trim(0, &released).ok() && pool->usage().reserved_bytes == 0);
  }
}

TM_TEST("what the upstream refuses together it gives to each alone, and no more than each needs") {
  PoolPtr pool;
  const auto upstream =
      std::make_shared<SlowUpstream>([&](int call) { return call != 1 || pool->waiting_count() == 7; }, 2 * kMiB);
  pool = make_pool(upstream);
  std::vector<Block> blocks(8);
  std::vector<std::thread> running;
  for (unsigned each = 0; each < 8; ++each) {
    running.emplace_back([&, each] { blocks[each] = allocate(*pool, 2 * kMiB); });
  }
  for (std::thread& thread : running) thread.join();
  TM_CHECK(pool->usage().reserved_bytes == 16 * kMiB && upstream->calls() == 9);
  for (const Block& block : blocks) TM_CHECK(deallocate(*pool, block).ok());
}

TM_TEST("within its maximum a pool serves as many of those who wait as fit, and refuses the others") {
  PoolPtr pool;
  const auto upstream =
      std::make_shared<SlowUpstream>([&](int call) { return call != 1 || pool->waiting_count() == 7; });
  pool = make_pool(upstream, {.maximum_bytes = 10 * kMiB});
  std::atomic<int> served{0};
  std::atomic<int> refused{0};
  std::vector<Block> blocks(8);
  std::vector<std::thread> running;
  for (unsigned each = 0; each < 8; ++each) {
    running.emplace_back([&, each] {
      const Status status = pool->allocate({.nbytes = 2 * kMiB}, &blocks[each]);
      if (status.ok()) ++served;
      if (status.code() == Code::out_of_memory) ++refused;
    });
  }
  for (std::thread& thread : running) thread.join();
  TM_CHECK(served == 5 && refused == 3 && pool->usage().reserved_bytes == 10 * kMiB && upstream->calls() == 2);
  for (const Block& block : blocks) {
    if (block.generation != 0) TM_CHECK(deallocate(*pool, block).ok());
  }
  TM_CHECK(pool->is_valid());
}

TM_TEST("an upstream that comes back to the pool is served without waiting for itself") {
  class Returning final : public ResourceAdaptor {
   public:
    using ResourceAdaptor::ResourceAdaptor;
    Status do_allocate(const AllocRequest& request, Block* block) override {
      if (pool != nullptr && depth++ == 0) TM_CHECK(pool->allocate({.nbytes = 100}, &inner).ok());
      return ResourceAdaptor::do_allocate(request, block);
    }
    PoolMemoryResource* pool = nullptr;
    Block inner{};
    int depth = 0;
  };
  const auto upstream = std::make_shared<Returning>(make_leaf());
  const PoolPtr pool = make_pool(upstream);
  upstream->pool = pool.get();
  const Block outer = allocate(*pool, kMiB);
  TM_CHECK(upstream->depth == 2 && pool->is_valid());
  TM_CHECK(deallocate(*pool, outer).ok() && deallocate(*pool, upstream->inner).ok());
}
