// Prints one line of JSON per resource and number of threads: millions of pairs of allocate and deallocate per second,
// all threads together, each with a handful of live blocks of its own.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "driver/host/host_driver.hpp"
#include "resource/arena_memory_resource.hpp"
#include "resource/plain_memory_resource.hpp"

using namespace tensormem;

namespace {

constexpr int kPairs = 400000;
constexpr int kRepeats = 9;
constexpr int kLive = 8;

void churn(Resource& resource) {
  Block live[kLive];
  BlockState end{};
  for (int i = 0; i < kLive; ++i) (void)resource.allocate({.nbytes = 512U * (1U + i)}, &live[i]).ok();
  for (int i = 0; i < kPairs; ++i) {
    Block& each = live[i % kLive];
    (void)resource.deallocate(each, kDefaultStream, &end).ok();
    (void)resource.allocate({.nbytes = 512U * (1U + static_cast<unsigned>(i) % kLive)}, &each).ok();
  }
  for (const Block& each : live) (void)resource.deallocate(each, kDefaultStream, &end).ok();
}

double pairs_per_second(Resource& resource, int threads) {
  std::atomic<bool> go{false};
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      go.wait(false);
      churn(resource);
    });
  }
  const auto start = std::chrono::steady_clock::now();
  go.store(true);
  go.notify_all();
  for (std::thread& worker : workers) worker.join();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return threads * static_cast<double>(kPairs) / taken.count();
}

void report(const char* name, Resource& resource) {
  std::vector<double> rates[2];
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    rates[0].push_back(pairs_per_second(resource, 1));
    rates[1].push_back(pairs_per_second(resource, 4));
  }
  for (int i = 0; i < 2; ++i) {
    std::ranges::sort(rates[i]);
    std::printf("{\"question\":\"arena_threads\",\"resource\":\"%s\",\"threads\":%d,\"mpairs\":%.3f}\n", name,
                i == 0 ? 1 : 4, rates[i][kRepeats / 2] / 1e6);
  }
}

}  // namespace

int main() {
  const ResourcePtr leaf = std::make_shared<PlainMemoryResource>(host_driver(), 0, AllocationOptions{});
  std::shared_ptr<PoolMemoryResource> pool;
  std::shared_ptr<ArenaMemoryResource> arena;
  if (!PoolMemoryResource::create(leaf, {}, &pool).ok()) return 1;
  if (!ArenaMemoryResource::create(leaf, ArenaMemoryResource::default_arena_count(), &arena).ok()) return 1;
  report("tensormem arena", *arena);
  report("tensormem pool", *pool);
  report("operating system", *leaf);
  return 0;
}
