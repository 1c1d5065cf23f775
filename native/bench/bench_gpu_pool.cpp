// Prints one line of JSON per resource and pattern: nanoseconds for one allocate and one deallocate on a stream of the
// simulated GPU. The pool never asks the driver here: what it takes is what it adds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "driver/gpu/gpu_driver.hpp"
#include "driver/gpu/open.hpp"
#include "resource/async_memory_resource.hpp"
#include "resource/pool_memory_resource.hpp"

using namespace tensormem;

namespace {

constexpr int kPairs = 100000;
constexpr int kRepeats = 9;
constexpr std::uint64_t kMiB = 1ULL << 20;

// `live` blocks of as many sizes stay out; the oldest goes and one of its size comes.
double pair_ns(Resource& resource, StreamId stream, unsigned live) {
  std::vector<Block> blocks(live);
  BlockState end{};
  const auto take = [&](unsigned i) {
    (void)resource.allocate({.nbytes = (1 + i) * kMiB / 4, .stream = stream}, &blocks[i]).ok();
  };
  for (unsigned i = 0; i < live; ++i) take(i);
  const auto start = std::chrono::steady_clock::now();
  for (unsigned i = 0; i < kPairs; ++i) {
    (void)resource.deallocate(blocks[i % live], stream, &end).ok();
    take(i % live);
  }
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
  for (const Block& block : blocks) (void)resource.deallocate(block, stream, &end).ok();
  return taken.count() / kPairs;
}

void report(const char* name, Resource& resource, StreamId stream) {
  for (const unsigned live : {1U, 8U, 64U}) {
    std::vector<double> samples;
    for (int repeat = 0; repeat < kRepeats; ++repeat) samples.push_back(pair_ns(resource, stream, live));
    std::ranges::sort(samples);
    std::printf("{\"question\":\"gpu_pool\",\"resource\":\"%s\",\"live\":%u,\"ns\":%.1f}\n", name, live,
                samples[kRepeats / 2]);
  }
}

}  // namespace

int main() {
  std::string why;
  setenv("TENSORMEM_SIMGPU", "devices=1,memory=4GiB", 1);
  GpuPlatform* const platform = open_gpu_platform("cuda", TM_SIMGPU_CUDA, &why);
  if (platform == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  Driver& driver = *platform->driver(0);
  StreamId stream = 0;
  std::shared_ptr<AsyncMemoryResource> ordered;
  if (!AsyncMemoryResource::create(driver, 0, ~0ULL, &ordered).ok()) return 1;
  std::shared_ptr<PoolMemoryResource> pool;
  if (!driver.stream_create(0, &stream).ok()) return 1;
  if (!PoolMemoryResource::create(ordered, {.initial_bytes = 1024 * kMiB}, &pool).ok()) return 1;
  report("tensormem pool", *pool, stream);
  report("stream-ordered allocator", *ordered, stream);
  return 0;
}
