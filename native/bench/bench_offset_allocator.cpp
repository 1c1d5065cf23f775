// Question: how fast and how tight is the offset allocator? With so many ranges live, free a random one and allocate a
// log-uniform size from 256 B to 1 MiB. Peers run on the same traces, turn by turn, so that a busy machine is busy for
// all. Prints one line of JSON per allocator and live count: ns (median over repeats) and packing (mean over repeats).
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "alloc/offset_allocator.hpp"
#include "bench/peers.hpp"

namespace tensormem::bench {

namespace {

// Larger than any run needs: nothing ever fails, and only the high-water mark tells.
constexpr std::uint64_t kCapacity = 1ULL << 40;

class Ours {
 public:
  using Handle = std::uint32_t;
  explicit Ours(std::uint64_t capacity) { must(space_.open(capacity)); }
  Handle allocate(std::uint64_t size) {
    Allocation allocation;
    must(space_.allocate(size, 1, &allocation));
    return allocation.node;
  }
  void deallocate(Handle node) { must(space_.deallocate(node)); }
  std::uint64_t high_water() const { return space_.high_water(); }

 private:
  static void must(const Status& status) {
    if (!status.ok()) std::abort();
  }
  OffsetAllocator space_;
};

struct Trace {
  std::vector<std::uint64_t> sizes;    // of the first `live` ranges, then of one range per pair
  std::vector<std::uint32_t> victims;  // one per pair
  std::uint64_t peak_live = 0;
  std::size_t live = 0;
};

Trace make_trace(std::size_t live, std::size_t pairs, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(8.0, 20.0);
  Trace trace;
  trace.live = live;
  for (std::size_t i = 0; i < live + pairs; ++i)
    trace.sizes.push_back(static_cast<std::uint64_t>(std::exp2(exponent(random))));
  std::uint64_t now = 0;
  std::vector<std::uint64_t> held(trace.sizes.begin(), trace.sizes.begin() + static_cast<std::ptrdiff_t>(live));
  for (const std::uint64_t size : held) now += size;
  trace.peak_live = now;
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto victim = static_cast<std::uint32_t>(random() % live);
    trace.victims.push_back(victim);
    now += trace.sizes[live + i] - held[victim];
    held[victim] = trace.sizes[live + i];
    trace.peak_live = std::max(trace.peak_live, now);
  }
  return trace;
}

// The time this thread had a core: nothing here waits, so what others take from it is not ours.
double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct Figures {
  std::vector<double> ns;
  double packing = 0;
};

// The first half of the pairs ages the space; the second half is timed.
template <typename Allocator>
void run(const Trace& trace, Figures* figures) {
  Allocator space(kCapacity);
  std::vector<typename Allocator::Handle> held(trace.live);
  for (std::size_t i = 0; i < trace.live; ++i) held[i] = space.allocate(trace.sizes[i]);
  const auto churn = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const std::uint32_t victim = trace.victims[i];
      space.deallocate(held[victim]);
      held[victim] = space.allocate(trace.sizes[trace.live + i]);
    }
  };
  const std::size_t half = trace.victims.size() / 2;
  churn(0, half);
  const double start = thread_ns();
  churn(half, trace.victims.size());
  figures->ns.push_back((thread_ns() - start) / static_cast<double>(trace.victims.size() - half));
  figures->packing += static_cast<double>(space.high_water()) / static_cast<double>(trace.peak_live);
}

void print(const char* allocator, std::size_t live, Figures& figures) {
  std::sort(figures.ns.begin(), figures.ns.end());
  const std::size_t repeats = figures.ns.size();
  std::printf("{\"question\":\"offset_allocator\",\"allocator\":\"%s\",\"live\":%zu,\"ns\":%.1f,\"packing\":%.4f}\n",
              allocator, live, figures.ns[repeats / 2], figures.packing / static_cast<double>(repeats));
  std::fflush(stdout);
}

void measure(std::size_t live, std::size_t pairs, std::size_t repeats) {
  Figures ours;
  Figures map;
  Figures plain;
  for (std::size_t repeat = 0; repeat < repeats; ++repeat) {
    const Trace trace = make_trace(live, pairs, repeat + 1);
    run<Ours>(trace, &ours);
    run<MapBestFit>(trace, &map);
    run<PlainSegregatedFit>(trace, &plain);
  }
  print("ours", live, ours);
  print("std::map best fit", live, map);
  print("plain segregated fit", live, plain);
}

}  // namespace

}  // namespace tensormem::bench

int main() {
  using tensormem::bench::measure;
  measure(10, 200'000, 25);
  measure(1'000, 300'000, 11);
  measure(10'000, 600'000, 5);
  measure(100'000, 1'500'000, 3);
  return 0;
}
