#include "alloc/generation.hpp"

#include <atomic>

namespace tensormem {

namespace {
std::atomic<std::uint64_t> g_next_generation{1};
}

void GenerationSource::refill() {
  next_ = g_next_generation.fetch_add(kBatch, std::memory_order_relaxed);
  end_ = next_ + kBatch;
}

}  // namespace tensormem
