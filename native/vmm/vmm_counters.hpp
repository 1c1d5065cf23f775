// Owns: what a virtual memory manager has out, counted by the objects themselves as they come and go.
// Must not know: the objects.
#pragma once

#include <atomic>
#include <cstdint>

namespace tensormem {

struct VmmCounters {
  std::atomic<std::uint64_t> ranges{0};
  std::atomic<std::uint64_t> reserved_bytes{0};
  std::atomic<std::uint64_t> physicals{0};
  std::atomic<std::uint64_t> physical_bytes{0};
  std::atomic<std::uint64_t> mappings{0};
  std::atomic<std::uint64_t> mapped_bytes{0};
};

}  // namespace tensormem
